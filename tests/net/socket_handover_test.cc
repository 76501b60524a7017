#include "net/socket_handover.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/run.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "os/socket/fd_passing.h"
#include "os/socket/server_socket.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/forked.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::net {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using std::chrono::milliseconds;
using std::chrono::seconds;

using fo::test::soon;

ino_t inode(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_ino;
}

using Sockets = std::vector<UniqueFd>;

Sockets make_sockets(std::size_t count) {
  Sockets sockets;
  for (std::size_t i = 0; i < count; ++i) {
    sockets.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  return sockets;
}

std::vector<ino_t> inodes(const Sockets& sockets) {
  std::vector<ino_t> found;
  for (const UniqueFd& socket : sockets) found.push_back(inode(socket.get()));
  return found;
}

/// Closes the sockets once they are given.
boost::asio::awaitable<bool> offer_at(std::string path, Sockets& sockets, Deadline deadline) {
  const os::ServerSocket server = os::open_server_socket(path);
  std::vector<int> fds;
  for (const UniqueFd& socket : sockets) fds.push_back(socket.get());
  const std::optional<base::Duration> timeout = seconds(5);
  const bool given = co_await give_sockets(server.listener.get(), fds, deadline, timeout);
  if (given) sockets.clear();
  co_return given;
}

boost::asio::awaitable<Sockets> take_from(std::string path, Deadline deadline) {
  ReceivedSockets received = co_await receive_sockets(std::move(path), deadline);
  if (received.sockets.empty()) co_return Sockets{};
  const bool ours = co_await confirm_sockets(received, deadline);
  if (!ours) co_return Sockets{};
  co_return std::move(received.sockets);
}

/// Giver and taker, each on its own loop.
class SocketHandover : public fo::test::FdCounting {
 protected:
  /// Offers on another thread.
  std::future<bool> offer(Sockets& sockets, Deadline deadline = soon()) {
    return std::async(std::launch::async, [this, &sockets, deadline] {
      return loop::run_to_end(offer_at(path_, sockets, deadline));
    });
  }
  Sockets take(Deadline deadline = soon()) const {
    return loop::run_to_end(take_from(path_, deadline));
  }
  /// Connects once there is an offer.
  [[nodiscard]] UniqueFd connect() const {
    const Deadline deadline = soon();
    while (!deadline.expired()) {
      try {
        return os::connect_unix(path_, deadline);
      } catch (const base::Error&) {
        fo::test::pause_between_looks();
      }
    }
    ADD_FAILURE() << "nobody offers";
    return {};
  }
  Sockets take_when_offered() const {
    const Deadline deadline = soon();
    while (!deadline.expired()) {
      Sockets taken = take();
      if (!taken.empty()) return taken;
      fo::test::pause_between_looks();
    }
    ADD_FAILURE() << "nobody offers";
    return {};
  }

  fo::test::TempDir folder_;
  std::string path_ = folder_.path("handover.sock");
};

/// A giver that sends `says`, with one descriptor each, and then either stays or closes.
class BadGiver {
 public:
  BadGiver(const std::string& path, std::vector<std::string> says, bool stays)
      : listener_(os::listen_unix(path)), thread_([this, says = std::move(says), stays, path] {
          pollfd ready{listener_.get(), POLLIN, 0};
          ::poll(&ready, 1, 30000);
          const UniqueFd taker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          ::unlink(path.c_str());
          const int fds[] = {listener_.get()};
          for (const std::string& bytes : says) {
            os::send_with_fds(taker.get(), std::as_bytes(std::span(bytes)), fds);
          }
          char byte = 0;
          while (stays && ::read(taker.get(), &byte, 1) > 0) {
          }
        }) {}
  ~BadGiver() { thread_.join(); }

 private:
  UniqueFd listener_;
  std::thread thread_;
};

std::string batch(std::uint32_t here, std::uint32_t to_come) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &here, 4);
  std::memcpy(bytes.data() + 4, &to_come, 4);
  return bytes;
}

TEST_F(SocketHandover, GivesAllOfThemInTheirOrder) {
  // Counts on both sides of a batch's end.
  for (const std::size_t count : {1U, 2U, 99U, 100U, 101U, 102U, 300U, 451U}) {
    Sockets sockets = make_sockets(count);
    const std::vector<ino_t> before = inodes(sockets);
    std::future<bool> given = offer(sockets);
    const Sockets taken = take_when_offered();
    EXPECT_TRUE(given.get());
    EXPECT_EQ(inodes(taken), before);
    EXPECT_TRUE(sockets.empty());
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketHandover, BothHaveTheSocketsUntilTheReceiverConfirms) {
  Sockets sockets = make_sockets(2);
  const std::vector<ino_t> before = inodes(sockets);
  std::future<bool> given = offer(sockets);
  { const UniqueFd offered = connect(); }
  {
    const ReceivedSockets abandoned = loop::run_to_end(receive_sockets(path_, soon()));
    EXPECT_EQ(inodes(abandoned.sockets), before);
    EXPECT_EQ(sockets.size(), 2U);
  }
  const ReceivedSockets received = loop::run_to_end(receive_sockets(path_, soon()));
  EXPECT_EQ(inodes(received.sockets), before);
  EXPECT_EQ(given.wait_for(seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(loop::run_to_end(confirm_sockets(received, soon())));
  EXPECT_TRUE(given.get());
}

TEST_F(SocketHandover, AReceiverThatIsRefusedDoesNotOwnTheSockets) {
  const BadGiver giver(path_, {batch(1, 0)}, false);
  const ReceivedSockets received = loop::run_to_end(receive_sockets(path_, soon()));
  EXPECT_EQ(received.sockets.size(), 1U);
  EXPECT_FALSE(loop::run_to_end(confirm_sockets(received, soon())));
}

TEST_F(SocketHandover, TakesNothingWhereNobodyOffers) {
  EXPECT_TRUE(take().empty());
  { const UniqueFd left_behind = os::listen_unix(path_); }
  EXPECT_TRUE(take().empty());
}

TEST_F(SocketHandover, KeepsAllWhenNobodyComes) {
  Sockets sockets = make_sockets(3);
  const std::vector<ino_t> before = inodes(sockets);
  EXPECT_FALSE(offer(sockets, Deadline::after(milliseconds(50))).get());
  EXPECT_EQ(inodes(sockets), before);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketHandover, TakesNothingFromAnotherUser) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  fo::test::Forked giver([&](int ready) {
    if (::setuid(65534) != 0) return 1;
    const UniqueFd listener = os::listen_unix(path_);
    fo::test::say(ready, 1);
    return fo::test::pause_for_ever();
  });
  ASSERT_TRUE(giver.read());
  EXPECT_EQ(fo::test::failure_of([&] { take(); }).status, ExitStatus::kNotPermitted);
}

TEST_F(SocketHandover, GivesNothingToAnotherUser) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  const os::Pipe pipe;
  const os::Child taker = os::fork_child([&] {
    char offered = 0;
    if (::read(pipe.reader.get(), &offered, 1) != 1 || ::setuid(65534) != 0) return 1;
    const UniqueFd connected = os::connect_unix(path_, soon());
    std::byte header[8];
    std::vector<UniqueFd> fds;
    return os::receive_with_fds(connected.get(), header, fds) == 0 ? 0 : 2;
  });
  Sockets sockets = make_sockets(1);
  std::future<bool> given = offer(sockets);
  { const UniqueFd offered = connect(); }
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  std::filesystem::permissions(path_, std::filesystem::perms::all);
  ASSERT_EQ(::write(pipe.writer.get(), "o", 1), 1);
  EXPECT_EQ(taker.wait(soon()), 0);
  EXPECT_FALSE(take_when_offered().empty());
  EXPECT_TRUE(given.get());
}

TEST_F(SocketHandover, AProcessThatConnectsAgainAndAgainDoesNotFillTheLog) {
  Sockets sockets = make_sockets(1);
  testing::internal::CaptureStderr();
  std::future<bool> given = offer(sockets);
  for (int i = 0; i < 100; ++i) const UniqueFd refused = connect();
  EXPECT_FALSE(take_when_offered().empty());
  EXPECT_TRUE(given.get());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("closed the connection"), std::string::npos) << log;
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 50) << log;
}

TEST_F(SocketHandover, TakersThatDieOnTheWayLeaveAllWithTheGiver) {
  Sockets sockets = make_sockets(250);
  const std::vector<ino_t> before = inodes(sockets);
  std::future<bool> given = offer(sockets);
  // After each of the batches, and before the first.
  for (int batches = 0; batches <= 3; ++batches) {
    const UniqueFd taker = connect();
    for (int i = 0; i < batches; ++i) {
      std::byte header[8];
      std::vector<UniqueFd> fds;
      ASSERT_EQ(os::receive_with_fds(taker.get(), header, fds), 8);
      EXPECT_LE(fds.size(), 100U);
      // The last one is never confirmed.
      if (i < 2) {
        ASSERT_EQ(::write(taker.get(), "k", 1), 1);
      }
    }
  }
  EXPECT_EQ(inodes(take_when_offered()), before);
  EXPECT_TRUE(given.get());
}

TEST_F(SocketHandover, AKilledTakerLeavesAllWithTheGiver) {
  Sockets sockets = make_sockets(250);
  const std::vector<ino_t> before = inodes(sockets);
  fo::test::Forked taker([&](int ready) {
    const UniqueFd connected = connect();
    std::byte header[8];
    std::vector<UniqueFd> fds;
    if (os::receive_with_fds(connected.get(), header, fds) != 8) return 1;
    fo::test::say(ready, 1);
    return fo::test::pause_for_ever();
  });
  std::future<bool> given = offer(sockets);
  EXPECT_TRUE(taker.read());
  taker.kill();
  EXPECT_EQ(inodes(take_when_offered()), before);
  EXPECT_TRUE(given.get());
}

TEST_F(SocketHandover, ASilentTakerDoesNotOutliveTheDeadline) {
  Sockets sockets = make_sockets(3);
  boost::asio::io_context io;
  auto given = boost::asio::co_spawn(
      io, offer_at(path_, sockets, Deadline::after(milliseconds(50))), boost::asio::use_future);
  // The loop is stopped until the taker has connected, so the deadline cannot pass first.
  while (!std::filesystem::exists(path_)) io.run_one();
  const UniqueFd silent = os::connect_unix(path_, soon());
  io.run();
  EXPECT_FALSE(given.get());
  EXPECT_EQ(sockets.size(), 3U);
}

TEST_F(SocketHandover, TakesNothingFromAGiverThatGoesAway) {
  for (const std::vector<std::string>& says : std::vector<std::vector<std::string>>{
           {}, {"half"}, {batch(1, 0)}, {batch(1, 1)}, {batch(1, 1), batch(1, 0)}}) {
    const BadGiver giver(path_, says, false);
    EXPECT_TRUE(take().empty());
  }
}

TEST_F(SocketHandover, RefusesWhatDoesNotAddUp) {
  for (const std::string& says :
       {batch(0, 0), batch(0, 5), batch(2, 0), batch(1, 100000), batch(1, 0xffffffffU),
        batch(0xffffffffU, 1), std::string(8, 'x')}) {
    const BadGiver giver(path_, {says}, true);
    EXPECT_EQ(fo::test::failure_of([&] { take(); }).status, ExitStatus::kProtocol);
  }
}

TEST_F(SocketHandover, DoesNotWaitForASilentGiverForEver) {
  const BadGiver giver(path_, {batch(1, 1)}, true);
  const auto failure = fo::test::failure_of([&] { take(Deadline::after(milliseconds(50))); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
}

}  // namespace
}  // namespace fo::net
