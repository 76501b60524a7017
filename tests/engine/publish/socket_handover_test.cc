#include "engine/publish/socket_handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "base/error.h"
#include "os/fd_passing.h"
#include "os/process.h"
#include "os/server_socket.h"
#include "os/unix_socket.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::engine {
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

UniqueFd make_socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

PublishedSockets make_sockets(std::size_t clients) {
  PublishedSockets sockets;
  sockets.listener = make_socket();
  for (std::size_t i = 0; i < clients; ++i) sockets.clients.push_back(make_socket());
  return sockets;
}

std::vector<ino_t> inodes(const PublishedSockets& sockets) {
  std::vector<ino_t> found{inode(sockets.listener.get())};
  for (const UniqueFd& client : sockets.clients) found.push_back(inode(client.get()));
  return found;
}

/// Giver and taker, each on its own loop.
class SocketHandover : public test::FdCounting {
 protected:
  /// Offers on another thread.
  std::future<bool> offer(PublishedSockets& sockets, Deadline deadline = soon()) {
    return std::async(std::launch::async, [this, &sockets, deadline] {
      boost::asio::io_context io;
      auto given = boost::asio::co_spawn(io, offer_sockets(path_, sockets, deadline),
                                         boost::asio::use_future);
      io.run();
      return given.get();
    });
  }
  PublishedSockets take(Deadline deadline = soon()) const {
    boost::asio::io_context io;
    auto taken = boost::asio::co_spawn(io, take_sockets(path_, deadline), boost::asio::use_future);
    io.run();
    return taken.get();
  }
  /// Connects once there is an offer.
  [[nodiscard]] UniqueFd connect() const {
    const Deadline deadline = soon();
    while (!deadline.expired()) {
      try {
        return os::connect_unix(path_, deadline);
      } catch (const base::Error&) {
        std::this_thread::yield();
      }
    }
    ADD_FAILURE() << "nobody offers";
    return {};
  }
  PublishedSockets take_when_offered() const {
    const Deadline deadline = soon();
    while (!deadline.expired()) {
      PublishedSockets taken = take();
      if (taken.listener) return taken;
      std::this_thread::yield();
    }
    ADD_FAILURE() << "nobody offers";
    return {};
  }

  test::TempDir folder_;
  std::string path_ = folder_.path("handover.sock");
};

TEST_F(SocketHandover, GivesAllOfThemInTheirOrder) {
  // Counts on both sides of a batch's end.
  for (const std::size_t clients : {0U, 1U, 98U, 99U, 100U, 101U, 299U, 450U}) {
    PublishedSockets sockets = make_sockets(clients);
    const std::vector<ino_t> before = inodes(sockets);
    std::future<bool> given = offer(sockets);
    const PublishedSockets taken = take_when_offered();
    EXPECT_TRUE(given.get());
    EXPECT_EQ(inodes(taken), before);
    EXPECT_FALSE(sockets.listener);
    EXPECT_TRUE(sockets.clients.empty());
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketHandover, TakesNothingWhereNobodyOffers) {
  EXPECT_FALSE(take().listener);
  { const UniqueFd left_behind = os::listen_unix(path_); }
  EXPECT_FALSE(take().listener);
  EXPECT_TRUE(take().clients.empty());
}

TEST_F(SocketHandover, WhatADeadGiverLeftIsRemoved) {
  static_cast<void>(os::listen_unix(path_));
  ASSERT_TRUE(std::filesystem::is_socket(path_));
  EXPECT_FALSE(take().listener);
  EXPECT_FALSE(std::filesystem::exists(path_));
  // The socket of a giver that has the lock already, but does not listen yet.
  static_cast<void>(os::listen_unix(path_));
  const auto giver = os::try_lock_path(path_ + ".lock");
  EXPECT_FALSE(take().listener);
  EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(SocketHandover, KeepsAllWhenNobodyComes) {
  PublishedSockets sockets = make_sockets(3);
  const std::vector<ino_t> before = inodes(sockets);
  EXPECT_FALSE(offer(sockets, Deadline::after(milliseconds(50))).get());
  EXPECT_EQ(inodes(sockets), before);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

/// A process that runs `body` after it has reported its start.
class OtherProcess {
 public:
  explicit OtherProcess(const std::function<int()>& body) : child_(start(body)) {}
  ~OtherProcess() {
    child_.signal(SIGKILL);
    static_cast<void>(child_.wait(soon()));
  }

 private:
  static os::Child start(const std::function<int()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd reader(ends[0]);
    const UniqueFd writer(ends[1]);
    os::Child child = os::fork_child([&] {
      const int status = body();
      if (status != 0 || ::write(writer.get(), "r", 1) != 1) return status;
      for (;;) ::pause();
      return 0;
    });
    char ready = 0;
    EXPECT_EQ(::read(reader.get(), &ready, 1), 1);
    return child;
  }
  os::Child child_;
};

TEST_F(SocketHandover, TakesNothingFromAnotherUser) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  const OtherProcess giver([&] {
    if (::setuid(65534) != 0) return 1;
    static const UniqueFd listener = os::listen_unix(path_);
    return 0;
  });
  EXPECT_EQ(test::failure_of([&] { take(); }).status, ExitStatus::kNotPermitted);
}

TEST_F(SocketHandover, GivesNothingToAnotherUser) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const os::Child taker = os::fork_child([&] {
    char offered = 0;
    if (::read(reader.get(), &offered, 1) != 1 || ::setuid(65534) != 0) return 1;
    const UniqueFd connected = os::connect_unix(path_, soon());
    std::byte header[8];
    std::vector<UniqueFd> fds;
    return os::receive_with_fds(connected.get(), header, fds) == 0 ? 0 : 2;
  });
  PublishedSockets sockets = make_sockets(1);
  std::future<bool> given = offer(sockets);
  { const UniqueFd offered = connect(); }
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  std::filesystem::permissions(path_, std::filesystem::perms::all);
  ASSERT_EQ(::write(writer.get(), "o", 1), 1);
  EXPECT_EQ(taker.wait(soon()), 0);
  EXPECT_TRUE(take_when_offered().listener);
  EXPECT_TRUE(given.get());
}

TEST_F(SocketHandover, TakersThatDieOnTheWayLeaveAllWithTheGiver) {
  PublishedSockets sockets = make_sockets(250);
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
  PublishedSockets sockets = make_sockets(250);
  const std::vector<ino_t> before = inodes(sockets);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  const os::Child taker = os::fork_child([&] {
    const UniqueFd connected = connect();
    std::byte header[8];
    std::vector<UniqueFd> fds;
    if (os::receive_with_fds(connected.get(), header, fds) != 8) return 1;
    if (::write(writer.get(), "r", 1) != 1) return 1;
    for (;;) ::pause();
    return 0;
  });
  std::future<bool> given = offer(sockets);
  char ready = 0;
  EXPECT_EQ(::read(reader.get(), &ready, 1), 1);
  taker.signal(SIGKILL);
  EXPECT_EQ(inodes(take_when_offered()), before);
  EXPECT_TRUE(given.get());
  EXPECT_EQ(taker.wait(soon()), 128 + SIGKILL);
}

TEST_F(SocketHandover, ASilentTakerDoesNotOutliveTheDeadline) {
  PublishedSockets sockets = make_sockets(3);
  boost::asio::io_context io;
  auto given =
      boost::asio::co_spawn(io, offer_sockets(path_, sockets, Deadline::after(milliseconds(50))),
                            boost::asio::use_future);
  // The loop is stopped until the taker has connected, so the deadline cannot pass first.
  while (!std::filesystem::exists(path_)) io.run_one();
  const UniqueFd silent = os::connect_unix(path_, soon());
  io.run();
  EXPECT_FALSE(given.get());
  EXPECT_EQ(sockets.clients.size(), 3U);
}

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

TEST_F(SocketHandover, TakesNothingFromAGiverThatGoesAway) {
  for (const std::vector<std::string>& says : std::vector<std::vector<std::string>>{
           {}, {"half"}, {batch(1, 0)}, {batch(1, 1)}, {batch(1, 1), batch(1, 0)}}) {
    const BadGiver giver(path_, says, false);
    EXPECT_FALSE(take().listener);
  }
}

TEST_F(SocketHandover, RefusesWhatDoesNotAddUp) {
  for (const std::string& says :
       {batch(0, 0), batch(0, 5), batch(2, 0), batch(1, 100000), batch(1, 0xffffffffU),
        batch(0xffffffffU, 1), std::string(8, 'x')}) {
    const BadGiver giver(path_, {says}, true);
    EXPECT_EQ(test::failure_of([&] { take(); }).status, ExitStatus::kProtocol);
  }
}

TEST_F(SocketHandover, DoesNotWaitForASilentGiverForEver) {
  const BadGiver giver(path_, {batch(1, 1)}, true);
  const auto failure = test::failure_of([&] { take(Deadline::after(milliseconds(50))); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
}

}  // namespace
}  // namespace fo::engine
