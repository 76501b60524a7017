#include "loop/adopt.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>
#include <vector>

#include "support/failure.h"
#include "support/fds.h"

namespace fo::loop {
namespace {

namespace asio = boost::asio;
using base::ExitStatus;
using base::UniqueFd;
using Descriptor = asio::posix::stream_descriptor;

class Adopt : public test::FdCounting {};

// Nested epoll sets, as deep as epoll(7) allows: it refuses the last one.
std::vector<UniqueFd> nested_sets() {
  std::vector<UniqueFd> sets;
  epoll_event event{};
  do {
    sets.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
  } while (sets.size() == 1 ||
           ::epoll_ctl(sets.back().get(), EPOLL_CTL_ADD, sets[sets.size() - 2].get(), &event) == 0);
  sets.pop_back();
  return sets;
}

TEST_F(Adopt, WhatIsTakenIsTheDescriptorItself) {
  asio::io_context loop;
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC));
  const int number = fd.get();
  Descriptor descriptor(loop);
  adopt(descriptor, std::move(fd), "watch it");
  EXPECT_EQ(descriptor.native_handle(), number);
}

TEST_F(Adopt, ASocketIsTakenWithItsProtocol) {
  asio::io_context loop;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other(ends[1]);
  asio::generic::stream_protocol::socket socket(loop);
  adopt(socket, UniqueFd(ends[0]), "watch it", asio::generic::stream_protocol(AF_UNIX, 0));
  EXPECT_EQ(socket.native_handle(), ends[0]);
}

TEST_F(Adopt, WhatTheLoopRefusesIsAnErrorAndClosed) {
  asio::io_context loop;
  Descriptor descriptor(loop);
  std::vector<UniqueFd> sets = nested_sets();
  const int refused = sets.back().get();
  const auto failure =
      test::failure_of([&] { adopt(descriptor, std::move(sets.back()), "watch descriptor 'x'"); });
  EXPECT_EQ(failure.status, ExitStatus::kOsError);
  EXPECT_THAT(failure.message, testing::StartsWith("watch descriptor 'x': "));
  EXPECT_EQ(::fcntl(refused, F_GETFD), -1);
  EXPECT_FALSE(descriptor.is_open());

  boost::system::error_code error;
  adopt(descriptor, UniqueFd(::eventfd(0, EFD_CLOEXEC)), error);
  EXPECT_FALSE(error) << error.message();
  EXPECT_TRUE(descriptor.is_open());
}

TEST_F(Adopt, ADuplicateIsAboveTheStandardOnesAndNotInherited) {
  const UniqueFd copy = duplicate(STDERR_FILENO, "copy it");
  EXPECT_GT(copy.get(), STDERR_FILENO);
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(Adopt, WhatIsNotOpenHasNoDuplicate) {
  const auto failure = test::failure_of([] { duplicate(-1, "copy it"); });
  EXPECT_EQ(failure.status, ExitStatus::kOsError);
  EXPECT_EQ(failure.message, "copy it: Bad file descriptor");
}

}  // namespace
}  // namespace fo::loop
