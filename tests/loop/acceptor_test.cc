#include "loop/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "loop/test_loop.h"
#include "os/socket/unix_socket.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace fo::loop {
namespace {

using base::UniqueFd;
using test::soon;
using test::TestLoop;

class AcceptorTest : public testing::Test {
 protected:
  AcceptorTest()
      : acceptor_(loop_.io().get_executor(), os::listen_unix(path_), "accept a client") {}

  UniqueFd connect() { return os::connect_unix(path_, soon()); }
  UniqueFd next() { return loop_.run(acceptor_.next(is_full_)); }
  /// Runs next() beside what else the test does; the client is in `accepted_`.
  void begin_next() {
    is_done_ = false;
    boost::asio::co_spawn(loop_.io(), acceptor_.next(is_full_, make_room_),
                          [this](const std::exception_ptr& error, UniqueFd client) {
                            EXPECT_FALSE(error);
                            is_done_ = true;
                            accepted_ = std::move(client);
                          });
  }
  void run_until_done() {
    loop_.run_until([this] { return is_done_; });
  }
  /// All that can be done at once.
  void run_ready() {
    loop_.io().restart();
    loop_.io().poll();
  }

  test::TempDir folder_;
  std::string path_ = folder_.path("socket");
  TestLoop loop_;
  Acceptor acceptor_;
  bool full_ = false;
  std::function<bool()> is_full_ = [this] { return full_; };
  std::function<bool()> make_room_;
  bool is_done_ = false;
  UniqueFd accepted_;
};

TEST_F(AcceptorTest, GivesEachClientOnce) {
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(connect());
  for (const UniqueFd& client : clients) {
    const UniqueFd served = next();
    ASSERT_TRUE(served);
    EXPECT_EQ(::fcntl(served.get(), F_GETFD), FD_CLOEXEC);
    ASSERT_EQ(::send(client.get(), "x", 1, 0), 1);
    char byte = 0;
    EXPECT_EQ(::recv(served.get(), &byte, 1, 0), 1);
  }
}

TEST_F(AcceptorTest, TakesNoneWhileItIsFull) {
  full_ = true;
  const UniqueFd client = connect();
  begin_next();
  run_ready();
  EXPECT_FALSE(is_done_);
  full_ = false;
  acceptor_.notify_room();
  run_until_done();
  EXPECT_TRUE(accepted_);
}

TEST_F(AcceptorTest, WithoutADescriptorItTriesAgainWhenOneIsFree) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  const UniqueFd client = connect();
  const test::FewDescriptors few(2);
  std::vector<UniqueFd> all(2);
  for (UniqueFd& fd : all) fd.reset(::dup(client.get()));
  begin_next();
  run_ready();
  EXPECT_FALSE(is_done_);
  all.clear();
  acceptor_.notify_room();
  run_until_done();
  EXPECT_TRUE(accepted_);
}

TEST_F(AcceptorTest, MakesRoomOnlyForAClientThatWaits) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  const UniqueFd first = connect();
  const test::FewDescriptors few(2);
  std::vector<UniqueFd> all(2);
  for (UniqueFd& fd : all) fd.reset(::dup(first.get()));
  int released = 0;
  make_room_ = [&] {
    if (all.empty()) return false;
    ++released;
    all.pop_back();
    return true;
  };
  begin_next();
  run_until_done();
  EXPECT_TRUE(accepted_);
  EXPECT_EQ(released, 1);
  begin_next();
  run_ready();
  EXPECT_FALSE(is_done_);
  EXPECT_EQ(released, 1);
}

TEST_F(AcceptorTest, CloseEndsTheWaitForAClient) {
  begin_next();
  run_ready();
  EXPECT_FALSE(is_done_);
  acceptor_.close();
  run_until_done();
  EXPECT_FALSE(accepted_);
}

TEST_F(AcceptorTest, CloseEndsTheWaitForRoom) {
  full_ = true;
  const UniqueFd client = connect();
  begin_next();
  run_ready();
  EXPECT_FALSE(is_done_);
  acceptor_.close();
  run_until_done();
  EXPECT_FALSE(accepted_);
}

}  // namespace
}  // namespace fo::loop
