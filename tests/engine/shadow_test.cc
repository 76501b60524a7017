// fo-shadow without free descriptors.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/pair_process.h"
#include "http/client.h"
#include "os/process/process.h"
#include "os/process/sibling.h"
#include "support/must_run.h"
#include "support/ports.h"
#include "support/sanitizers.h"
#include "support/temp_dir.h"

namespace fo {
namespace {

using base::Deadline;
using base::UniqueFd;
using test::kPairTimeout;
using test::ReservedPort;
using test::wait_until;

/// One fo-shadow of an engine that ignores SIGTERM, in its own folder.
class Shadow : public testing::Test {
 protected:
  Shadow() { test::limit_run(std::chrono::seconds(110)); }
  ~Shadow() override {
    if (process_) process_->signal(SIGKILL);
    test::limit_run(std::chrono::seconds(0));
  }

  [[nodiscard]] std::vector<std::string> command(const std::string& before,
                                                 const std::string& options,
                                                 const std::string& engine) const {
    return {"sh", "-c",
            before + "; exec " FO_BUILD_DIR "/bin/fo-shadow -q --id a --port -1 --lock " + lock_ +
                " --engine command --sleep : --wake : --grace 10m " + options + " -- sh -c '" +
                engine + "'"};
  }
  void start(const std::string& options, const std::string& before = ":") {
    const std::string engine = "trap \"\" TERM; while :; do sleep 0.1; done";
    os::SpawnOptions spawn;
    spawn.parent_death_signal = SIGKILL;
    process_ = std::make_unique<os::Child>(
        os::spawn(command(before, "--gpu-free 0 " + options, engine), spawn));
    wait_until("the engine to be active",
               [this] { return status().find(R"("state":"active")") != std::string::npos; });
  }
  [[nodiscard]] std::string status() const {
    try {
      return http::fetch("GET", "unix:" + lock_ + ".a.sock:/status", Deadline::after(kPairTimeout))
          .body;
    } catch (const base::Error&) {
      return {};
    }
  }
  void replace_lock() {
    std::ofstream(dir_.path("new")).close();
    std::filesystem::rename(dir_.path("new"), lock_);
  }
  void expect_lost() {
    EXPECT_EQ(process_->wait(Deadline::after(kPairTimeout)),
              base::to_int(base::ExitStatus::kProtocol));
    process_.reset();
  }

  test::TempDir dir_;
  std::string lock_ = dir_.path("lock");
  std::unique_ptr<os::Child> process_;
};

TEST_F(Shadow, ALockThatIsLostKillsTheEngineWithoutADescriptor) {
  if (test::kHasSanitizers) FO_SKIP("release", test::kSanitizersOpenPipes);
  start("");
  const std::vector<pid_t> engine = test::Pair::children_of(process_->pid());
  ASSERT_EQ(engine.size(), 1U);
  const rlimit none_more{3, 3};
  ASSERT_EQ(::prlimit(process_->pid(), RLIMIT_NOFILE, &none_more, nullptr), 0);
  replace_lock();
  expect_lost();
  EXPECT_FALSE(os::open_pidfd(engine.front()));
}

TEST_F(Shadow, AMemoryGateThatCannotWorkIsToldBeforeTheEngineStarts) {
  const auto result = os::run_captured(command("export FO_LIBEXEC_DIR=" + dir_.path(),
                                               "--gpu-free 1MiB", ": >" + dir_.path("started")),
                                       Deadline::after(kPairTimeout));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, base::to_int(base::ExitStatus::kUnavailable)) << result->err;
  EXPECT_FALSE(std::filesystem::exists(dir_.path("started")));
}

TEST_F(Shadow, AHandoverThatFailsIsTriedUntilTheWakeDeadlineAndLoggedAFewTimes) {
  // A path that never leads to a socket.
  std::filesystem::create_symlink(lock_ + ".handover", lock_ + ".handover");
  const ReservedPort published;
  std::vector<std::string> loud = command(
      ":",
      "--gpu-free 0 --wake-timeout 2s --engine-url http://127.0.0.1:1 --publish 127.0.0.1:" +
          std::to_string(published.number()),
      "exec sleep 1h");
  loud.back().replace(loud.back().find(" -q "), 3, "");
  const auto result = os::run_captured(loud, Deadline::after(kPairTimeout));
  ASSERT_TRUE(result);
  EXPECT_NE(result->status, 0);
  std::size_t failures = 0;
  for (std::size_t at = 0; (at = result->err.find("Too many levels", at)) != std::string::npos;
       ++at)
    ++failures;
  EXPECT_GT(failures, 0U) << result->err;
  EXPECT_LT(failures, 12U) << result->err;
}

TEST_F(Shadow, ClientsLeaveDescriptorsForTheLock) {
  // An engine that accepts connections and answers nothing.
  const ReservedPort target;
  const ReservedPort published;
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ASSERT_EQ(::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  const sockaddr_in address = test::loopback(target.number());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), SOMAXCONN), 0);
  start("--engine-url http://127.0.0.1:" + std::to_string(target.number()) +
            " --publish 127.0.0.1:" + std::to_string(published.number()),
        "ulimit -n 96");

  std::vector<UniqueFd> clients;
  for (int i = 0; i < 60; ++i) {
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(test::try_connect(client.get(), published.number()), 0);
    // The client waits for its answer, so that no other client replaces it.
    constexpr std::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_EQ(::send(client.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(kRequest.size()));
    clients.push_back(std::move(client));
  }
  std::vector<UniqueFd> served;
  const auto take = [&] {
    for (UniqueFd one; (one = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));)
      served.push_back(std::move(one));
    return served.size();
  };
  constexpr std::size_t kMax = 96 / 6;
  wait_until("the clients to be served", [&] { return take() >= kMax; });
  // Enough time to serve more.
  for (int i = 0; i < 20; ++i) EXPECT_NE(status(), "");
  replace_lock();
  expect_lost();
  EXPECT_EQ(take(), kMax);
}

}  // namespace
}  // namespace fo
