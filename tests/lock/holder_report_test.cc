// Who is said to hold a lock, and that nobody waits for the answer.
#include "lock/holder_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "lock/lockd_protocol.h"
#include "lock/support.h"

namespace fo::lock {
namespace {

using base::UniqueFd;
using testing::HasSubstr;

bool has_client(const UniqueFd& listener, int milliseconds) {
  pollfd ready{listener.get(), POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) == 1;
}

TEST(HolderReport, DoesNotHoldUpWhoeverWaits) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener.get(), generic, size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &size), 0);
  const std::string uri = "tcp:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  testing::internal::CaptureStderr();
  {
    HolderReport report({parse_lock_uri(uri)}, "engine-1");
    // Returns though it is answered only below; and asks no second time meanwhile.
    report();
    report();
    ASSERT_TRUE(has_client(listener, 20'000));
    const UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(connection);
    char last = 0;
    while (last != '\n') ASSERT_EQ(::read(connection.get(), &last, 1), 1);
    StatusAnswer status;
    status.holder = "engine-0";
    status.generation = 7;
    const std::string line = encode_answer(status);
    ASSERT_EQ(::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("waiting for lock '" + uri + "': held by 'engine-0'"));
  EXPECT_FALSE(has_client(listener, 0));
}

}  // namespace
}  // namespace fo::lock
