// The lock server with real sockets, real processes and real deaths. Decision 8's table is first.
#include "lock/lockd/lockd_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <source_location>

#include "base/deadline.h"
#include "lock/grant.h"
#include "lock/lockd.h"
#include "lock/lockd/lockd_model.h"
#include "lock/lockd/lockd_state.h"
#include "lock/lockd/wire.h"
#include "lock/support.h"
#include "net/line_buffer.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/socket/fd_passing.h"
#include "os/socket/unix_socket.h"
#include "support/await.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "text/time_text.h"

namespace {

// While this file exists, the server can't watch descriptors: sockets only, or all.
const char* unwatched_sockets = nullptr;
const char* unwatched = nullptr;
// While this file exists, fsync blocks.
const char* stalled_disk = nullptr;
// How often a socket was checked for its end, in memory shared with the server.
std::atomic<int>* looks = nullptr;

bool is_on(const char* switch_file) {
  return switch_file != nullptr && ::access(switch_file, F_OK) == 0;
}

}  // namespace

// These replace the functions of the C library.
extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  struct stat info {};
  const bool is_socket = ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  if (operation == EPOLL_CTL_ADD && (is_on(unwatched) || (is_socket && is_on(unwatched_sockets)))) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

extern "C" ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  if (looks != nullptr && (flags & MSG_PEEK) != 0) ++*looks;
  return ::syscall(SYS_recvfrom, fd, buffer, size, flags, nullptr, nullptr);
}

extern "C" int fsync(int fd) {
  while (is_on(stalled_disk)) ::poll(nullptr, 0, 10);
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

namespace fo::lock {
namespace {

using base::Deadline;
using base::ExitStatus;
using base::UniqueFd;
using os::Pipe;
using std::chrono::milliseconds;
using test::Forked;
using testing::ElementsAre;
using testing::IsEmpty;

using fo::test::soon;

using Client = test::LockdClient;

class LockdServer : public testing::Test {
 protected:
  LockdServer() {
    config_.socket_path = dir_.path("lock.sock");
    config_.reconnect_window = std::chrono::hours(1);
  }
  ~LockdServer() override {
    if (server_) kill_server();
  }

  // Returns when the server is ready. `before` runs in its process, with the ready descriptor.
  void start(const std::function<void(UniqueFd&)>& before = [](UniqueFd&) {}) {
    Pipe ready;
    const os::SpawnOptions options{.parent_death_signal = SIGKILL};
    server_ = std::make_unique<os::Child>(os::fork_child(
        [&] {
          before(ready.writer);
          LockdConfig config = config_;
          config.ready_fd = ready.writer.release();
          return serve_lock(config);
        },
        options));
    ready.writer.reset();
    char mark = 0;
    ASSERT_EQ(::read(ready.reader.get(), &mark, 1), 1) << "the server did not get ready";
    // Tests that count descriptors need it closed.
    ASSERT_EQ(::read(ready.reader.get(), &mark, 1), 0);
  }
  int end_server(int signal) {
    server_->signal(signal);
    const int status = server_->wait(soon()).value_or(-1);
    server_.reset();
    return status;
  }
  void kill_server() { EXPECT_EQ(end_server(SIGKILL), 128 + SIGKILL); }

  [[nodiscard]] Client connect() const {
    return Client(os::connect_unix(config_.socket_path, soon()));
  }
  [[nodiscard]] Client acquire(const std::string& id,
                               std::optional<std::uint64_t> claim = std::nullopt,
                               const std::vector<int>& fds = {}) const {
    Client client = connect();
    client.ask(AcquireRequest{id, claim}, fds);
    return client;
  }
  // The same, and expects this first answer.
  [[nodiscard]] Client answered(
      const std::string& word, const std::string& id,
      std::optional<std::uint64_t> claim = std::nullopt, const std::vector<int>& fds = {},
      const std::source_location& at = std::source_location::current()) const {
    Client client = acquire(id, claim, fds);
    EXPECT_EQ(client.hear_word(), word) << "line " << at.line();
    return client;
  }
  // Starts the server; the client holds the lock as "a".
  Client start_held() {
    start();
    return answered("granted 1", "a");
  }
  // A process that acquires the lock and keeps it, and reports the generation.
  Forked hold_in_child(const std::string& id, const std::vector<int>& fds = {}) const {
    return Forked([this, id, fds](int ready) {
      Client client = acquire(id, std::nullopt, fds);
      for (;;) {
        const auto answer = client.receive();
        if (!answer) break;
        if (const auto* granted = std::get_if<GrantedAnswer>(&*answer)) {
          test::say(ready, granted->generation);
        }
      }
      return test::pause_for_ever();
    });
  }

  [[nodiscard]] StatusAnswer status() const {
    Client client = connect();
    client.ask(StatusRequest{});
    return std::get<StatusAnswer>(client.receive().value());
  }
  void expect_soon(const std::function<bool(const StatusAnswer&)>& wanted) const {
    test::await([&] { return wanted(status()); });
  }
  [[nodiscard]] std::string state_path() const { return config_.socket_path + ".state"; }
  [[nodiscard]] LockdState state() const { return load_state(state_path()).state; }
  void write_state(const LockdState& state) const {
    test::spill(state_path(), encode_state(state));
  }
  [[nodiscard]] std::ptrdiff_t fds_of_server() const {
    const std::string folder = "/proc/" + std::to_string(server_->pid()) + "/fd";
    return std::distance(std::filesystem::directory_iterator(folder), {});
  }
  void expect_no_fd_left(std::ptrdiff_t before) const {
    const Deadline deadline = soon();
    while (fds_of_server() != before && !deadline.expired()) {
    }
    EXPECT_EQ(fds_of_server(), before);
  }

  test::TempDir dir_;
  LockdConfig config_;
  std::unique_ptr<os::Child> server_;
};

LockdState held(const std::string& holder, std::uint64_t generation,
                std::vector<RecordedProcess> processes = {}) {
  LockdState state;
  state.holder = holder;
  state.granted_at = *text::parse_time("2026-11-21T05:33:00.123Z");
  state.generation = state.last_generation = generation;
  state.connections = std::max<std::size_t>(processes.size(), 1);
  state.processes = std::move(processes);
  return state;
}

// --- decision 8

TEST_F(LockdServer, CrashWithAHealthyHolderIsNoFailover) {
  Client holder = start_held();
  Client waiter = answered("waiting for a", "b");
  kill_server();
  EXPECT_EQ(holder.hear_word(), "");
  EXPECT_EQ(waiter.hear_word(), "");
  start();
  waiter = answered("waiting for a", "b");
  EXPECT_EQ(status().window_left.has_value(), true);
  holder = answered("granted 1", "a", 1);
  EXPECT_EQ(status().window_left, std::nullopt);
  EXPECT_TRUE(waiter.is_quiet());
  holder.close();
  EXPECT_EQ(waiter.hear_word(), "granted 2");
}

TEST_F(LockdServer, CrashWithADeadHolderIsAFailoverWhenTheWindowIsOver) {
  start();
  Forked holder = hold_in_child("a");
  ASSERT_EQ(holder.read(), 1U);
  kill_server();
  holder.kill();
  config_.reconnect_window = milliseconds(100);
  start();
  Client first = acquire("b");
  EXPECT_EQ(first.read_verdict(), "granted 2");
  Client second = answered("waiting for b", "c");
}

TEST_F(LockdServer, CrashWithAVisibleHungHolderIsNoFailoverUntilItDies) {
  start();
  Forked holder = hold_in_child("a");
  ASSERT_EQ(holder.read(), 1U);
  ASSERT_EQ(::kill(holder.pid(), SIGSTOP), 0);
  kill_server();
  config_.reconnect_window = milliseconds(50);
  start();
  // The stopped process keeps the lock for any time.
  Client waiter = answered("waiting for a", "b");
  expect_soon([](const StatusAnswer& now) { return now.window_left == milliseconds(0); });
  EXPECT_THAT(status().awaited_pids, ElementsAre(holder.pid()));
  EXPECT_EQ(status().holder, "a");
  EXPECT_TRUE(waiter.is_quiet());
  holder.kill();
  EXPECT_EQ(waiter.hear_word(), "granted 2");
}

TEST_F(LockdServer, CrashWithAHungHolderThatIsNotVisibleIsAFailoverAndTheOldHolderIsFenced) {
  const auto elsewhere = [](UniqueFd& ready) {
    if (::unshare(CLONE_NEWPID) != 0) _exit(100);
    // The namespace's first process serves; this one ends with it.
    const pid_t pid = ::fork();
    if (pid == 0) return;
    ready.reset();
    int status = 0;
    ::waitpid(pid, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
  };
  if (test::status_of([&] {
        const os::Child probe = os::fork_child([] { return ::unshare(CLONE_NEWPID) == 0 ? 0 : 1; });
        if (probe.wait(soon()) != 0) throw base::Error(ExitStatus::kNotPermitted, "unshare");
      }) != ExitStatus::kOk) {
    FO_SKIP("root", "pid namespaces are not permitted here");
  }
  // A kill of the outer process would leave the server running, so the server ends by its
  // parent-death signal.
  const auto in_namespace = [&](UniqueFd& ready) {
    elsewhere(ready);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  };
  start(in_namespace);
  Client holder = answered("granted 1", "a");
  EXPECT_THAT(state().processes, IsEmpty());
  EXPECT_EQ(state().connections, 1U);
  EXPECT_THAT(status().connections, ElementsAre(StatusAnswer::Connection{std::nullopt, true}));
  kill_server();
  EXPECT_EQ(holder.hear_word(), "");
  config_.reconnect_window = milliseconds(50);
  start(in_namespace);
  Client waiter = acquire("b");
  EXPECT_EQ(waiter.read_verdict(), "granted 2");
  Client late = answered("refused 75", "a", 1);
  EXPECT_EQ(late.hear_word(), "");
  EXPECT_TRUE(waiter.is_quiet());
}

// --- death at every step

TEST_F(LockdServer, AGrantThatWasRecordedAndNeverToldIsStillItsClients) {
  write_state(held("b", 5, {*describe_process(::getpid())}));
  start();
  Client other = answered("waiting for b", "c");
  Client client = answered("granted 5", "b");
  EXPECT_EQ(status().granted_at, text::parse_time("2026-11-21T05:33:00.123Z"));
}

TEST_F(LockdServer, IsKilledManyTimesAndNeverGrantsTwice) {
  start();
  Forked holder([this](int ready) {
    std::optional<std::uint64_t> claim;
    for (;;) {
      try {
        Client client = acquire("a", claim);
        while (const auto answer = client.receive()) {
          const auto* granted = std::get_if<GrantedAnswer>(&*answer);
          if (granted == nullptr) continue;
          claim = granted->generation;
          test::say(ready, *claim);
        }
      } catch (const base::Error&) {
      }
    }
    return 0;
  });
  ASSERT_EQ(holder.read(), 1U);
  Client waiter = answered("waiting for a", "b");
  for (int i = 0; i < 20; ++i) {
    kill_server();
    start();
    ASSERT_EQ(holder.read(), 1U);
    waiter = answered("waiting for a", "b");
  }
  holder.kill();
  EXPECT_EQ(waiter.hear_word(), "granted 2");
}

TEST_F(LockdServer, AReleaseIsRecordedBeforeItEnds) {
  for (int i = 1; i <= 20; ++i) {
    start();
    Client holder = acquire("a");
    ASSERT_EQ(holder.hear_word(), "granted " + std::to_string(i));
    holder.close();
    expect_soon([](const StatusAnswer& now) { return !now.holder; });
    ASSERT_EQ(end_server(SIGTERM), 0);
    ASSERT_EQ(state().holder, std::nullopt);
  }
}

TEST_F(LockdServer, AStoppedHolderHoldsAndAStoppedWaiterIsGranted) {
  start();
  Forked holder = hold_in_child("a");
  ASSERT_EQ(holder.read(), 1U);
  Forked waiter = hold_in_child("b");
  expect_soon([](const StatusAnswer& now) { return now.waiters.size() == 1; });
  ASSERT_EQ(::kill(holder.pid(), SIGSTOP), 0);
  ASSERT_EQ(::kill(waiter.pid(), SIGSTOP), 0);
  EXPECT_EQ(status().holder, "a");
  holder.kill();
  expect_soon([](const StatusAnswer& now) { return now.holder == "b"; });
  ASSERT_EQ(::kill(waiter.pid(), SIGCONT), 0);
  EXPECT_EQ(waiter.read(), 2U);
}

TEST_F(LockdServer, WhatHappenedWhileItWasStoppedItFindsOut) {
  start();
  Forked holder = hold_in_child("a");
  ASSERT_EQ(holder.read(), 1U);
  Client waiter = answered("waiting for a", "b");
  server_->signal(SIGSTOP);
  holder.kill();
  Client late = acquire("c");
  server_->signal(SIGCONT);
  EXPECT_EQ(waiter.hear_word(), "granted 2");
  waiter.close();
  EXPECT_EQ(late.read_verdict(), "granted 3");
}

// --- the state file

TEST_F(LockdServer, WithoutRoomForTheRecordNobodyIsGrantedUntilThereIs) {
  const std::string folder = dir_.path("state");
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  config_.state_path = folder + "/lock";
  start();
  ASSERT_EQ(::rename(folder.c_str(), (folder + ".gone").c_str()), 0);
  Client first = acquire("a");
  Client second = acquire("b");
  EXPECT_EQ(first.hear_word(), "waiting for nobody");
  EXPECT_EQ(status().holder, std::nullopt);
  EXPECT_EQ(status().generation, 0U);
  first.close();
  EXPECT_EQ(second.hear_word(), "waiting for nobody");
  ASSERT_EQ(::rename((folder + ".gone").c_str(), folder.c_str()), 0);
  EXPECT_EQ(second.read_verdict(), "granted 2");
  EXPECT_EQ(load_state(config_.state_path).state.holder, "b");
}

TEST_F(LockdServer, RecordsGrantsJoinsAndTheEnd) {
  Client first = start_held();
  EXPECT_EQ(state().holder, "a");
  EXPECT_EQ(state().generation, 1U);
  EXPECT_THAT(state().processes, ElementsAre(*describe_process(::getpid())));
  Forked second = hold_in_child("a");
  ASSERT_EQ(second.read(), 1U);
  EXPECT_EQ(state().processes.size(), 2U);
  second.kill();
  first.close();
  test::await([&] { return !state().holder; });
  EXPECT_EQ(state().generation, 1U);
}

TEST_F(LockdServer, ALostStateFileIsMadeUpForByTheClaim) {
  Client holder = start_held();
  kill_server();
  std::filesystem::remove(state_path());
  start();
  Client liar = connect();
  holder = answered("granted 6", "a", 6);
  liar.ask(AcquireRequest{"b", 5});
  EXPECT_EQ(liar.hear_word(), "refused 75");
  Client waiter = answered("waiting for a", "b");
  holder.close();
  EXPECT_EQ(waiter.hear_word(), "granted 7");
}

TEST_F(LockdServer, AStateFileThatCannotBeReplacedEndsItAtOnce) {
  test::spill(dir_.path("real"), encode_state({}));
  std::filesystem::create_symlink(dir_.path("real"), state_path());
  const auto failure = test::failure_of([&] { serve_lock(config_); });
  EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
  EXPECT_EQ(failure.message, "read '" + state_path() + "': a symbolic link, which is not followed");
  EXPECT_FALSE(std::filesystem::exists(config_.socket_path));
}

TEST_F(LockdServer, AFolderThatCannotBeWrittenEndsItAtOnce) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  const std::string folder = dir_.path("state");
  ASSERT_EQ(::mkdir(folder.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(dir_.path("").c_str(), 0777), 0);
  config_.state_path = folder + "/lock";
  const auto serve_as_other = [&] {
    const os::Child server = os::fork_child([this] {
      if (::setuid(65534) != 0) return 1;
      return to_int(test::status_of([&] { serve_lock(config_); }));
    });
    return server.wait(soon());
  };
  EXPECT_EQ(serve_as_other(), 77);
  test::spill(config_.state_path + ".lock", "");
  ASSERT_EQ(::chmod((config_.state_path + ".lock").c_str(), 0666), 0);
  EXPECT_EQ(serve_as_other(), 77);
}

TEST_F(LockdServer, WritesBackWhatItFindsAndRemovesItsTemporaries) {
  test::spill(state_path() + ".aB3xYz", "{");
  test::spill(state_path(), "{\"holder\":");
  start();
  EXPECT_EQ(test::slurp(state_path()), "{\"holder\":");
  EXPECT_FALSE(std::filesystem::exists(state_path() + ".aB3xYz"));
  kill_server();
  std::filesystem::remove(state_path());
  start();
  EXPECT_EQ(state(), LockdState{});
  EXPECT_TRUE(std::filesystem::exists(state_path()));
}

TEST_F(LockdServer, AReleaseThatCouldNotBeRecordedIsRecordedLater) {
  const std::string folder = dir_.path("state");
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  config_.state_path = folder + "/lock";
  Client holder = start_held();
  ASSERT_EQ(::rename(folder.c_str(), (folder + ".gone").c_str()), 0);
  holder.close();
  expect_soon([](const StatusAnswer& now) { return !now.holder; });
  ASSERT_EQ(::rename((folder + ".gone").c_str(), folder.c_str()), 0);
  test::await([&] { return !load_state(config_.state_path).state.holder; });
}

TEST_F(LockdServer, ADiskThatDoesNotAnswerDoesNotKeepItFromEnding) {
  const std::string stall = dir_.path("stall");
  for (const bool twice : {true, false}) {
    start([&](UniqueFd&) { stalled_disk = stall.c_str(); });
    test::spill(stall, "");
    Client client = acquire("a");
    expect_soon([](const StatusAnswer& now) { return now.waiters.size() == 1; });
    server_->signal(SIGTERM);
    if (twice) {
      // The socket is closed once the first signal was handled.
      test::await([&] { return !os::is_socket_live(config_.socket_path); });
      server_->signal(SIGTERM);
    }
    EXPECT_EQ(server_->wait(soon()), 0);
    server_.reset();
    EXPECT_FALSE(std::filesystem::exists(config_.socket_path));
    EXPECT_EQ(client.hear_word(), "");
    std::filesystem::remove(stall);
  }
}

TEST_F(LockdServer, AStateFileThatIsNoneEndsItAtOnce) {
  ASSERT_EQ(::mkdir(state_path().c_str(), 0700), 0);
  EXPECT_EQ(test::status_of([&] { serve_lock(config_); }), ExitStatus::kCannotCreate);
  std::filesystem::remove(state_path());
  ASSERT_EQ(::mkfifo(state_path().c_str(), 0600), 0);
  EXPECT_EQ(test::failure_of([&] { serve_lock(config_); }).message,
            "read '" + state_path() + "': not a regular file");
  std::filesystem::remove(state_path());
  std::filesystem::create_symlink(state_path(), state_path());
  EXPECT_EQ(test::status_of([&] { serve_lock(config_); }), ExitStatus::kCannotCreate);
  EXPECT_FALSE(std::filesystem::exists(config_.socket_path));
}

// --- queue, ranks, lifelines

TEST_F(LockdServer, OneMoreWaiterIsNoWorkForThoseThatWait) {
  void* const shared =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  looks = new (shared) std::atomic<int>(0);
  start();
  std::vector<Client> clients;
  const int count = static_cast<int>(kMaxPlacesOfProcess) + 1;
  for (int i = 0; i < count; ++i) {
    clients.push_back(acquire("engine-" + std::to_string(i)));
    EXPECT_EQ(clients.back().hear_word(), i == 0 ? "granted 1" : "waiting for engine-0");
  }
  // Each new connection was checked, and the holder's, which it might join.
  EXPECT_LE(*looks, 2 * count);
  // One process has a limited number of waiting connections, and another one has its own.
  Client refused = acquire("engine-x");
  const auto answer = refused.receive();
  ASSERT_TRUE(answer && std::holds_alternative<RefusedAnswer>(*answer));
  EXPECT_EQ(std::get<RefusedAnswer>(*answer).status, ExitStatus::kTryAgain);
  EXPECT_EQ(std::get<RefusedAnswer>(*answer).reason,
            "too many connections from process " + std::to_string(::getpid()) + " wait: 64");
  EXPECT_EQ(refused.hear_word(), "");
  Forked other([this](int ready) {
    Client client = acquire("engine-y");
    test::say(ready, client.hear_word() == "waiting for engine-0" ? 1 : 0);
    return 0;
  });
  EXPECT_EQ(other.read(), 1U);
  kill_server();
  looks = nullptr;
  ::munmap(shared, 4096);
}

TEST_F(LockdServer, ALifelineKeepsTheLockUntilTheLastWriterIsGone) {
  start();
  auto lifeline = std::make_unique<Pipe>();
  const std::vector<int> fds{lifeline->reader.get()};
  Forked holder = hold_in_child("a", fds);
  ASSERT_EQ(holder.read(), 1U);
  // A worker with nothing but the writing end.
  Forked worker([&](int) {
    lifeline->reader.reset();
    return test::pause_for_ever();
  });
  lifeline.reset();
  Client waiter = answered("waiting for a", "b");
  holder.kill();
  expect_soon([](const StatusAnswer& now) {
    return now.connections.size() == 1 && !now.connections[0].connected;
  });
  EXPECT_EQ(status().holder, "a");
  EXPECT_TRUE(waiter.is_quiet());
  // Another process with this id is not the holder.
  Client namesake = answered("waiting for a", "a");
  worker.kill();
  EXPECT_EQ(waiter.hear_word(), "granted 2");
}

TEST_F(LockdServer, WhatIsWrittenIntoALifelineDoesNotMatter) {
  start();
  Pipe lifeline;
  Client holder = answered("granted 1", "a", std::nullopt, {lifeline.reader.get()});
  lifeline.reader.reset();
  os::write_all(lifeline.writer.get(), std::string(1 << 20, 'x'), "fill the lifeline");
  holder.close();
  expect_soon([](const StatusAnswer& now) { return !now.connections.at(0).connected; });
  os::write_all(lifeline.writer.get(), std::string(1 << 20, 'x'), "fill the lifeline");
  EXPECT_EQ(status().holder, "a");
  lifeline.writer.reset();
  expect_soon([](const StatusAnswer& now) { return !now.holder; });
}

TEST_F(LockdServer, ALifelineThatIsOverFromTheStartIsNone) {
  start();
  Pipe lifeline;
  lifeline.writer.reset();
  Client holder = answered("granted 1", "a", std::nullopt, {lifeline.reader.get()});
  holder.close();
  expect_soon([](const StatusAnswer& now) { return !now.holder; });
}

// The end of a connection counts before later connections, however much there is to read. Here the
// holder connected to a new server and died before the server read anything.
TEST_F(LockdServer, AnEngineThatAsksAnewNeverJoinsAConnectionWhoseEndIsNotRead) {
  config_.reconnect_window = std::chrono::milliseconds(100);
  for (int i = 0; i < 10; ++i) {
    write_state(held("a", 5));
    start();
    server_->signal(SIGSTOP);
    Forked gone([this](int) {
      Client client = acquire("a", 5);
      return 0;
    });
    ASSERT_EQ(gone.wait(), 0);
    Client again = acquire("a");
    server_->signal(SIGCONT);
    EXPECT_EQ(again.read_verdict(), "granted 6");
    kill_server();
  }
}

TEST_F(LockdServer, AnEngineThatAsksAnewNeverJoinsItsDeadConnection) {
  start();
  for (std::uint64_t generation = 1; generation < 20; generation += 2) {
    Forked holder = hold_in_child("a");
    ASSERT_EQ(holder.read(), generation);
    Client waiter = answered("waiting for a", "b");
    server_->signal(SIGSTOP);
    std::vector<Client> crowd;
    for (int i = 0; i < 300; ++i) {
      crowd.push_back(connect());
      crowd.back().ask(StatusRequest{});
    }
    holder.kill();
    Client again = acquire("a");
    server_->signal(SIGCONT);
    EXPECT_EQ(waiter.read_verdict(), "granted " + std::to_string(generation + 1));
    std::string word = again.hear_word();
    while (word == "waiting for a" || word == "waiting for nobody") word = again.hear_word();
    EXPECT_EQ(word, "waiting for b");
    again.close();
    expect_soon([](const StatusAnswer& now) { return now.waiters.empty(); });
  }
}

// --- hostile peers

TEST_F(LockdServer, AnEndThatIsNoReadingEndOfAPipeIsRefused) {
  start();
  const std::ptrdiff_t before = fds_of_server();
  const Pipe pipe;
  const std::string fifo = dir_.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd both = os::open_file(fifo, O_RDWR);
  const UniqueFd file = os::open_file(dir_.path("file"), O_RDWR | O_CREAT);
  const Client socket = connect();
  for (const std::vector<int>& fds :
       std::vector<std::vector<int>>{{pipe.writer.get()},
                                     {both.get()},
                                     {file.get()},
                                     {socket.fd()},
                                     {pipe.reader.get(), pipe.reader.get()},
                                     std::vector<int>(os::kMaxFdsPerMessage, pipe.reader.get())}) {
    Client client = answered("refused 76", "a", std::nullopt, fds);
    EXPECT_EQ(client.hear_word(), "");
  }
  EXPECT_EQ(status().holder, std::nullopt);
  expect_no_fd_left(before + 1);  // `socket`
}

TEST_F(LockdServer, ADescriptorWithAnyOtherMessageIsRefused) {
  start();
  const std::ptrdiff_t before = fds_of_server();
  const Pipe pipe;
  {
    Client client = connect();
    client.ask(StatusRequest{}, {pipe.reader.get()});
    EXPECT_EQ(client.hear_word(), "refused 76");
  }
  {
    Client client = answered("granted 1", "a");
    client.send("x", {pipe.reader.get()});
    EXPECT_EQ(client.hear_word(), "refused 76");
  }
  {
    Client client = connect();
    client.send("{", {pipe.reader.get()});
    client.send("\"", {pipe.reader.get()});
    EXPECT_EQ(client.hear_word(), "refused 76");
  }
  expect_soon([](const StatusAnswer& now) { return !now.holder; });
  expect_no_fd_left(before);
}

TEST_F(LockdServer, WhoComesAndGoesDoesNotFillTheLog) {
  const std::string log = dir_.path("log");
  start([&](UniqueFd&) {
    const UniqueFd file = os::open_file(log, O_WRONLY | O_CREAT | O_APPEND);
    if (::dup2(file.get(), STDERR_FILENO) < 0) _exit(100);
    os::set_log("gms-lockd", os::LogLevel::kInfo);
  });
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(acquire("a").read_verdict(), "granted " + std::to_string(i + 1));
    EXPECT_EQ(acquire("b", 1).hear_word(), "refused 75");
    Client client = connect();
    client.send("nonsense\n");
    EXPECT_EQ(client.hear_word(), "refused 76");
  }
  const std::string text = test::slurp(log);
  EXPECT_GT(text.size(), 0U);
  // All messages together would be more than a thousand.
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 200) << text;
}

TEST_F(LockdServer, GarbageEndsItsConnectionOnly) {
  start();
  const std::ptrdiff_t before = fds_of_server();
  Client holder = answered("granted 1", "a");
  for (const std::string& bytes :
       {std::string("\n"), std::string("GET / HTTP/1.1\r\n"), std::string("\0\0\0\n", 4),
        std::string(4096, 'x'), std::string(100000, '['),
        std::string("{\"request\":\"release\"}\n"), std::string("\xff\xfe\n")}) {
    Client client = connect();
    client.send(bytes);
    EXPECT_EQ(client.hear_word(), "refused 76");
    EXPECT_EQ(client.hear_word(), "");
  }
  Client nameless = answered("refused 78", "");
  Client twice = connect();
  twice.ask(StatusRequest{});
  twice.ask(AcquireRequest{"b"});
  EXPECT_EQ(twice.hear_word(), "status");
  EXPECT_EQ(twice.hear_word(), "refused 76");
  EXPECT_EQ(status().holder, "a");
  EXPECT_TRUE(status().waiters.empty());
  EXPECT_TRUE(holder.is_quiet());
  expect_no_fd_left(before + 1);
}

TEST_F(LockdServer, APeerThatCannotBeWatchedIsRefusedAndTheRestAreServed) {
  const std::string sockets = dir_.path("no-sockets");
  const std::string nothing = dir_.path("nothing");
  start([&](UniqueFd&) {
    unwatched_sockets = sockets.c_str();
    unwatched = nothing.c_str();
  });
  Client holder = answered("granted 1", "a");
  const std::ptrdiff_t before = fds_of_server();

  test::spill(sockets, "");
  Client unlucky = connect();
  EXPECT_EQ(unlucky.hear_word(), "");
  std::filesystem::remove(sockets);
  expect_no_fd_left(before);

  Client with_lifeline = connect();
  with_lifeline.ask(StatusRequest{});
  EXPECT_EQ(with_lifeline.hear_word(), "status");
  Client late = connect();
  expect_soon([](const StatusAnswer&) { return true; });
  test::spill(nothing, "");
  const Pipe pipe;
  late.ask(AcquireRequest{"b"}, {pipe.reader.get()});
  EXPECT_EQ(late.hear_word(), "refused 71");
  EXPECT_EQ(late.hear_word(), "");
  std::filesystem::remove(nothing);
  expect_no_fd_left(before + 1);  // `with_lifeline`
  EXPECT_EQ(status().holder, "a");
  EXPECT_TRUE(status().waiters.empty());
}

TEST_F(LockdServer, ARequestMayComeByteByByteAndManyAtOnce) {
  start();
  Client client = connect();
  for (const char c : encode_request(StatusRequest{})) ASSERT_TRUE(client.send({&c, 1}));
  EXPECT_EQ(client.hear_word(), "status");
  const std::string one = encode_request(StatusRequest{});
  ASSERT_TRUE(client.send(one + one + one));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.hear_word(), "status");
}

TEST_F(LockdServer, WhoSaysNothingIsDroppedAndWhoHoldsIsNot) {
  config_.silence_limit = milliseconds(1000);
  Client holder = start_held();
  Client waiter = answered("waiting for a", "b");
  Client silent = connect();
  Client half = connect();
  half.send("{\"request\":");
  Client watcher = connect();
  watcher.ask(StatusRequest{});
  EXPECT_EQ(watcher.hear_word(), "status");
  EXPECT_EQ(silent.hear_word(), "");
  EXPECT_EQ(half.hear_word(), "");
  EXPECT_EQ(watcher.hear_word(), "");
  EXPECT_TRUE(holder.is_quiet());
  EXPECT_TRUE(waiter.is_quiet());
}

TEST_F(LockdServer, MoreConnectionsThanThereArePlacesWait) {
  config_.max_connections = 2;
  Client first = start_held();
  Client second = answered("waiting for a", "b");
  Client third = acquire("c");
  second.close();
  EXPECT_EQ(third.hear_word(), "waiting for a");
}

TEST_F(LockdServer, WhoDoesNotReadItsAnswersIsDropped) {
  Client holder = start_held();
  Client deaf = connect();
  const std::string line = encode_request(StatusRequest{});
  const Deadline deadline = soon();
  while (deaf.send(line)) ASSERT_FALSE(deadline.expired());
  EXPECT_EQ(status().holder, "a");
}

TEST_F(LockdServer, AnotherUsersProcessIsRefused) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  start();
  struct stat info {};
  ASSERT_EQ(::stat(config_.socket_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  ASSERT_EQ(::chmod(config_.socket_path.c_str(), 0666), 0);
  ASSERT_EQ(::chmod(std::filesystem::path(config_.socket_path).parent_path().c_str(), 0755), 0);
  const os::Child stranger = os::fork_child([this] {
    if (::setuid(65534) != 0) return 1;
    Client client = connect();
    return client.hear_word() == "refused 77" && client.hear_word().empty() ? 0 : 2;
  });
  EXPECT_EQ(stranger.wait(soon()), 0);
}

}  // namespace
}  // namespace fo::lock
