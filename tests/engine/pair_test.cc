#include "engine/pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "engine/status_socket.h"
#include "loop/test_loop.h"
#include "os/file/file.h"
#include "os/socket/unix_socket.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using namespace std::chrono_literals;
using base::ExitStatus;
using nlohmann::json;
using test::failure_of;
using test::in_ms;
using test::soon;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string http_answer(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// A status socket with a thread that sends the test's bytes for each request, and closes.
class Peer {
 public:
  /// The bytes for a request line such as "GET /status"; empty: no answer and no end.
  using Answer = std::function<std::string(const std::string&)>;

  Peer(const std::string& socket, Answer answer)
      : path_(socket),
        listener_(os::listen_unix(socket)),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        answer_(std::move(answer)),
        thread_([this] { run(); }) {}
  Peer(const std::string& socket, const std::string& status)
      : Peer(socket, [status](const std::string&) { return http_answer(200, status); }) {}
  ~Peer() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
    ::unlink(path_.c_str());
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

 private:
  // False if the thread should end.
  bool wait_for(int fd, short events) const {
    pollfd both[] = {{stop_.get(), POLLIN, 0}, {fd, events, 0}};
    return ::poll(both, 2, -1) > 0 && both[0].revents == 0;
  }
  void run() {
    std::vector<base::UniqueFd> silent;
    while (wait_for(listener_.get(), POLLIN)) {
      base::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::string request;
      char chunk[4096];
      while (request.find("\r\n\r\n") == std::string::npos && wait_for(client.get(), POLLIN)) {
        const ssize_t got = ::recv(client.get(), chunk, sizeof chunk, 0);
        if (got <= 0) break;
        request.append(chunk, static_cast<std::size_t>(got));
      }
      const std::string bytes = answer_(request.substr(0, request.find(" HTTP")));
      std::size_t sent = 0;
      while (sent < bytes.size() && wait_for(client.get(), POLLOUT)) {
        const ssize_t put = ::send(client.get(), bytes.data() + sent, bytes.size() - sent,
                                   MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put <= 0) break;
        sent += static_cast<std::size_t>(put);
      }
      if (bytes.empty()) silent.push_back(std::move(client));
    }
  }

  std::string path_;
  base::UniqueFd listener_;
  base::UniqueFd stop_;
  Answer answer_;
  std::thread thread_;
};

class PairTest : public test::FdCounting {
 protected:
  PairTest() { lock_.path = dir_.path("lock"); }

  [[nodiscard]] std::string socket(const std::string& id) const {
    return status_socket_path(lock_, id);
  }
  void add(const std::string& id, const std::string& status) {
    peers_.push_back(std::make_unique<Peer>(socket(id), status));
  }
  void add_raw(const std::string& id, const std::string& bytes) {
    peers_.push_back(
        std::make_unique<Peer>(socket(id), [bytes](const std::string&) { return bytes; }));
  }
  void add_state(const std::string& id, const std::string& state) {
    add(id, R"({"id":")" + id + R"(","state":")" + state + "\"}");
  }
  /// A socket on which nothing listens any more.
  void add_dead(const std::string& id) { os::listen_unix(socket(id)); }
  json engines() { return json::parse(read_pair(lock_).json)["engines"]; }
  bool stands_by() { return loop_.run(has_standby(lock_, "a")); }

  test::TempDir dir_;
  lock::LockUri lock_;
  test::TestLoop loop_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

// --- The engines of a lock.

TEST_F(PairTest, StatusSocketsAreThoseBesideTheLockInOrder) {
  add_dead("b");
  add_dead("a");
  const base::UniqueFd handover = os::listen_unix(handover_path(lock_));
  const base::UniqueFd other = os::listen_unix(dir_.path("lock2.a.sock"));
  const base::UniqueFd nameless = os::listen_unix(dir_.path("lock.sock"));
  os::write_file_atomic(dir_.path("lock.c.sock"), "no socket");
  EXPECT_THAT(find_status_sockets(lock_), ElementsAre(socket("a"), socket("b")));
}

TEST_F(PairTest, AFolderThatIsNotThereHasNone) {
  lock_.path = dir_.path("none/lock");
  EXPECT_TRUE(find_status_sockets(lock_).empty());
}

TEST_F(PairTest, NobodyAtAll) {
  const PairStatus pair = read_pair(lock_);
  EXPECT_FALSE(pair.active);
  EXPECT_EQ(pair.text, "lock: " + lock_.path + "\nholder: -\ngeneration: -\n");
  EXPECT_EQ(json::parse(pair.json), json::parse(R"({"lock":")" + lock_.path +
                                                R"(","holder":null,"generation":null,)"
                                                R"("engines":[],"gms":[]})"));
}

TEST_F(PairTest, TellsWhatEachEngineSays) {
  add("a", R"({"id":"a","state":"active","since":1763750000.5,"pid":7,"last_failover":)"
           R"({"generation":3,"active_at":1763750001,"phases":{"wake":0.25,"odd":1}},"new":[]})");
  add_state("b", "standby");
  const PairStatus pair = read_pair(lock_);
  EXPECT_TRUE(pair.active);
  EXPECT_THAT(pair.text, HasSubstr("engine a: active since 2025-11-21T18:33:20.5"));
  EXPECT_THAT(pair.text, HasSubstr(", process 7\n  last failover: generation 3, active at "));
  EXPECT_THAT(pair.text, HasSubstr(", wake 250"));
  EXPECT_THAT(pair.text, Not(HasSubstr("odd")));
  EXPECT_THAT(pair.text, HasSubstr("engine b: standby\n"));
  const json object = json::parse(pair.json)["engines"];
  EXPECT_EQ(object[0]["new"], json::array());
  EXPECT_EQ(object[0]["socket"], socket("a"));
}

TEST_F(PairTest, AnEngineThatDoesNotAnswerIsDead) {
  add_dead("a");
  add_raw("b", "");
  const PairStatus pair = read_pair(lock_);
  EXPECT_FALSE(pair.active);
  const json engines = json::parse(pair.json)["engines"];
  EXPECT_EQ(engines[0]["id"], "a");
  EXPECT_EQ(engines[0]["state"], "dead");
  EXPECT_THAT(std::string(engines[0]["reason"]), HasSubstr("Connection refused"));
  EXPECT_EQ(engines[1]["state"], "dead");
  EXPECT_THAT(std::string(engines[1]["reason"]), HasSubstr("timed out"));
}

TEST_F(PairTest, AnAnswerThatIsNoneIsThatOfADeadEngine) {
  const std::vector<std::string> answers{
      "\x01\x02 garbage \xff\n\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"id\":\"a\"",
      http_answer(200, ""),
      http_answer(200, "[]"),
      http_answer(200, R"({"id":"a"})"),
      http_answer(200, R"({"id":1,"state":"active"})"),
      http_answer(200, R"({"id":"a","state":["active"]})"),
      http_answer(200, R"({"id":"a","state":"active")"),
      http_answer(200, std::string(100'000, '[')),
      http_answer(503, R"({"id":"a","state":"active"})"),
      http_answer(200, R"({"id":"a","state":"active","x":")" + std::string(2 << 20, 'x') + "\"}"),
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}"};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    add_raw("a" + std::to_string(i + 10), answers[i]);
  }
  const PairStatus pair = read_pair(lock_);
  EXPECT_FALSE(pair.active);
  const json engines = json::parse(pair.json)["engines"];
  ASSERT_EQ(engines.size(), answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(engines[i]["state"], "dead") << answers[i].substr(0, 200);
    EXPECT_EQ(engines[i]["id"], "a" + std::to_string(i + 10));
  }
}

TEST_F(PairTest, OddFieldsDoNotHurt) {
  add("a", R"({"id":"a","state":"active","since":1e300,"pid":{"x":1},"gms":[1,{"socket":5},)"
           R"({"device":0}],"last_failover":{"generation":"x","active_at":[],"phases":)"
           R"({"lock":"soon","wake":-1e300,"gate":1e300}},"reason":[null]})");
  add("b", R"({"id":"b","state":"active","since":"now","gms":{"socket":"x"},"last_failover":7})");
  add("c", R"({"id":"c","state":"\ud800","since":-1e300,"last_failover":{"phases":[]}})");
  add("d", "{\"id\":\"d\",\"state\":\"\xff\"}");
  const PairStatus pair = read_pair(lock_);
  EXPECT_TRUE(pair.active);
  EXPECT_THAT(pair.text, HasSubstr("engine a: active since 2"));
  EXPECT_THAT(pair.text, HasSubstr("engine b: active since -\n"));
  EXPECT_EQ(json::parse(pair.json)["gms"], json::array());
}

TEST_F(PairTest, AsksTheMemoryServersThatEnginesName) {
  add("a", R"({"id":"a","state":"active","gms":[{"socket":")" + dir_.path("none") +
               R"("},{"socket":")" + std::string(300, 'x') + "\"}]}");
  const PairStatus pair = read_pair(lock_);
  const json gms = json::parse(pair.json)["gms"];
  ASSERT_EQ(gms.size(), 2u);
  EXPECT_EQ(gms[0]["state"], nullptr);
  EXPECT_THAT(std::string(gms[0]["reason"]), HasSubstr("No such file or directory"));
  EXPECT_TRUE(gms[1].contains("reason"));
  EXPECT_THAT(pair.text, HasSubstr("gms " + dir_.path("none") + ": "));
}

// --- Standbys.

TEST_F(PairTest, StandingByIsAnothersStandby) {
  EXPECT_FALSE(stands_by());
  add_state("a", "standby");
  add_state("b", "waking");
  add_dead("c");
  add_raw("d", "garbage");
  add_raw("e", http_answer(503, R"({"id":"e","state":"standby"})"));
  EXPECT_FALSE(stands_by());
  add_state("f", "standby");
  EXPECT_TRUE(stands_by());
}

// --- Switchovers.

struct ScriptedAnswer {
  std::string state = "active";
  int generation = 1;
};

/// An engine that receives a switchover request.
class SwitchTest : public PairTest {
 protected:
  static std::string tell(const std::string& id, const ScriptedAnswer& said) {
    return http_answer(
        200, json({{"id", id}, {"state", said.state}, {"generation", said.generation}}).dump());
  }
  /// Answers a switchover with `answer`; afterwards the status is `then`.
  void start(const std::string& answer, const ScriptedAnswer& then = {}) {
    peers_.push_back(
        std::make_unique<Peer>(socket("a"), [this, answer, then](const std::string& request) {
          const std::lock_guard guard(mutex_);
          if (request == "POST /switchover") {
            asked_ = true;
            return answer;
          }
          return tell("a", asked_ ? then : ScriptedAnswer{});
        }));
    peers_.push_back(std::make_unique<Peer>(socket("b"), [this](const std::string&) {
      const std::lock_guard guard(mutex_);
      return tell("b", asked_ ? other_ : ScriptedAnswer{"standby"});
    }));
  }

  const std::string accepted_ = http_answer(202, "{}");
  std::mutex mutex_;
  bool asked_ = false;
  ScriptedAnswer other_{"standby"};
};

TEST_F(SwitchTest, TheOneThatTakesOverIsTold) {
  other_ = {"active", 2};
  start(accepted_, {"standby"});
  EXPECT_EQ(switch_over(lock_, soon()), "b");
}

TEST_F(SwitchTest, NobodyActiveIsUnavailable) {
  add_state("a", "standby");
  const auto failure = failure_of([&] { switch_over(lock_, soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure.message,
            "switch over the engines of lock '" + lock_.path + "': no engine is active");
}

TEST_F(SwitchTest, ARefusalIsPassedOn) {
  start(http_answer(409, R"({"error":{"message":"not now"}})"));
  const auto failure = failure_of([&] { switch_over(lock_, soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_THAT(failure.message, testing::EndsWith("'a' refuses: not now"));
}

TEST_F(SwitchTest, ARefusalWithoutAReasonHasItsStatus) {
  for (const char* body : {"", "[]", R"({"error":5})"}) {
    peers_.clear();
    asked_ = false;
    start(http_answer(500, body));
    EXPECT_THAT(failure_of([&] { switch_over(lock_, soon()); }).message,
                testing::EndsWith("'a' refuses: status 500"));
  }
}

TEST_F(SwitchTest, WhoIsActiveAgainWasNotRelieved) {
  start(accepted_, {"active", 3});
  const auto failure = failure_of([&] { switch_over(lock_, soon()); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_THAT(failure.message, HasSubstr("no other engine took over; 'a' is active again"));
}

TEST_F(SwitchTest, WhatIsNotDoneInTimeIsTryAgain) {
  // On a busy machine, the time may be over before the engine has accepted.
  bool is_accepted = false;
  for (int ms = 50; !is_accepted; ms *= 2) {
    ASSERT_LE(ms, 20'000) << "each switchover timed out";
    peers_.clear();
    asked_ = false;
    start(accepted_, {"active", 1});
    const auto failure = failure_of([&] { switch_over(lock_, in_ms(ms)); });
    EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
    is_accepted = failure.message.find("timed out") == std::string::npos;
    if (is_accepted) {
      EXPECT_THAT(failure.message, HasSubstr("no other engine became active in time"));
    }
  }
}

}  // namespace
}  // namespace fo::engine
