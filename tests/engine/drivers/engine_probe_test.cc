#include "engine/drivers/engine_probe.h"

#include <gtest/gtest.h>

#include <mutex>

#include "base/error.h"
#include "engine/status_server.h"
#include "engine/status_socket.h"
#include "http/support.h"
#include "os/socket/unix_socket.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using enum EngineState;
using test::failure_of;

/// A status server on its own thread, with the given answer.
class Engine {
 public:
  explicit Engine(const std::string& socket, std::string answer) : answer_(std::move(answer)) {
    StatusSource source;
    source.status = [this] {
      const std::lock_guard guard(mutex_);
      ++asked_;
      return asked_ <= init_answers_ ? std::string(R"({"state":"init"})") : answer_;
    };
    server_ = std::make_unique<StatusServer>(loop_.get_executor(), std::move(source));
    server_->listen_unix(socket);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~Engine() {
    loop_.stop();
    thread_.join();
  }
  /// The first `count` answers are "init".
  void start_slowly(int count) {
    const std::lock_guard guard(mutex_);
    init_answers_ = count;
  }
  int asked() {
    const std::lock_guard guard(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::string answer_;
  int asked_ = 0;
  int init_answers_ = 0;
  boost::asio::io_context loop_{1};
  std::unique_ptr<StatusServer> server_;
  std::thread thread_;
};

class EngineProbing : public testing::Test {
 protected:
  EngineProbing() {
    socket_ = status_socket_path({lock::LockUri::Kind::kFlock, dir_.path("lock")}, "engine-0");
    probe_.url = "unix:" + socket_ + ":/status";
    probe_.timeout = 20s;
  }
  EngineProbeAnswer ask(const std::string& answer) {
    const Engine engine(socket_, answer);
    return probe_engine(probe_);
  }

  test::TempDir dir_;
  std::string socket_;
  EngineProbe probe_;
};

TEST_F(EngineProbing, AnyStateButDeadIsAYes) {
  for (const EngineState state : kAllStates) {
    const std::string name(state_name(state));
    const EngineProbeAnswer answer =
        ask(R"({"state":")" + name + R"(","id":"engine-0","since":5.5})");
    EXPECT_EQ(answer.yes, state != kDead) << name;
    EXPECT_EQ(answer.state, state);
    EXPECT_EQ(answer.id, "engine-0");
    EXPECT_EQ(answer.since, 5.5);
    if (answer.yes) {
      EXPECT_EQ(to_json(answer),
                R"({"id":"engine-0","result":"yes","since":5.5,"state":")" + name + R"("})");
    }
  }
}

TEST_F(EngineProbing, OnlyAWantedStateIsAYes) {
  for (const EngineState state : kAllStates) {
    probe_.states = {kStandby, kActive};
    const EngineProbeAnswer answer =
        ask(R"({"state":")" + std::string(state_name(state)) + R"("})");
    EXPECT_EQ(answer.yes, state == kStandby || state == kActive);
    if (!answer.yes) {
      EXPECT_EQ(answer.reason, "engine at '" + probe_.url + "': " + std::string(state_name(state)));
    }
  }
  probe_.states = {kDead};
  EXPECT_TRUE(ask(R"({"state":"dead"})").yes);
}

TEST_F(EngineProbing, WhatIsNoStatusIsANo) {
  for (const char* body : {"", "active", "[]", "{}", R"({"state":1})", R"({"state":"Active"})",
                           R"({"state":"ready","id":"engine-0"})", R"({"state":"active")"}) {
    const EngineProbeAnswer answer = ask(body);
    EXPECT_FALSE(answer.yes);
    EXPECT_EQ(answer.reason, "fetch '" + probe_.url + "': status 200, not a state of an engine");
    EXPECT_EQ(answer.state, std::nullopt);
  }
  EXPECT_TRUE(ask(R"({"state":"active","id":7,"since":"today"})").yes);
  probe_.url = "unix:" + socket_ + ":/elsewhere";
  EXPECT_EQ(ask(R"({"state":"active"})").reason,
            "fetch '" + probe_.url + "': status 404, not a state of an engine");
}

TEST_F(EngineProbing, NobodyThereIsANo) {
  EngineProbeAnswer answer = probe_engine(probe_);
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.reason, "connect to socket '" + socket_ + "': No such file or directory");
  EXPECT_EQ(to_json(answer), R"({"id":null,"reason":")" + answer.reason +
                                 R"(","result":"no","since":null,"state":null})");
  { const base::UniqueFd dead = os::listen_unix(socket_); }
  answer = probe_engine(probe_);
  EXPECT_EQ(answer.reason, "connect to socket '" + socket_ + "': Connection refused");
}

TEST_F(EngineProbing, AnEngineThatHangsIsANoInTime) {
  const base::UniqueFd listener = os::listen_unix(socket_);
  probe_.timeout = 100ms;
  const EngineProbeAnswer answer = probe_engine(probe_);
  EXPECT_FALSE(answer.yes);
  EXPECT_EQ(answer.reason, "fetch '" + probe_.url + "': timed out");
}

TEST_F(EngineProbing, WaitsForTheState) {
  Engine engine(socket_, R"({"state":"standby"})");
  engine.start_slowly(2);
  probe_.states = {kStandby};
  EXPECT_FALSE(probe_engine(probe_).yes);
  probe_.wait = 30s;
  EXPECT_TRUE(probe_engine(probe_).yes);
  EXPECT_EQ(engine.asked(), 3);
}

TEST_F(EngineProbing, WhatCannotBeAskedThrows) {
  probe_.url = "unix:" + std::string(200, 'x') + ":/status";
  EXPECT_EQ(failure_of([&] { probe_engine(probe_); }).status, ExitStatus::kUsage);
  probe_.url = "nonsense";
  EXPECT_EQ(failure_of([&] { probe_engine(probe_); }).status, ExitStatus::kUsage);
}

}  // namespace
}  // namespace fo::engine
