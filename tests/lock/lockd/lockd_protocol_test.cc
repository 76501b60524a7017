#include "lock/lockd/lockd_protocol.h"

#include <gtest/gtest.h>

#include "lock/grant.h"
#include "support/failure.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using std::chrono::milliseconds;
using test::failure_of;

const text::WallTime kTime = *text::parse_time("2026-11-21T05:33:00.123Z");

std::string without_newline(std::string line) {
  EXPECT_EQ(line.back(), '\n');
  line.pop_back();
  return line;
}

const std::string kToken = "0123456789abcdef0123456789abcdef";

const std::vector<LockdRequest> kRequests{AcquireRequest{"engine-0", std::nullopt},
                                          AcquireRequest{"\"\\ü\U0001F512", 7},
                                          StatusRequest{},
                                          ReleaseRequest{},
                                          HeartbeatRequest{kMaxSequence},
                                          AcquireRequest{"engine-0", 7, kToken}};

const std::vector<LockdAnswer> kAnswers{
    WaitingAnswer{"engine-1", 6, milliseconds(10000)},
    WaitingAnswer{std::nullopt, std::nullopt, milliseconds(0)},
    GrantedAnswer{"engine-0", 7, kTime, milliseconds(10000)},
    RefusedAnswer{ExitStatus::kTryAgain, "the grant of generation 7 is over"},
    HeartbeatAnswer{3, milliseconds(10000)},
    GrantedAnswer{"engine-0", 7, kTime, milliseconds(10000), kToken},
    StatusAnswer{},
    StatusAnswer{"engine-0",
                 7,
                 kTime,
                 {{12, true}, {std::nullopt, false}},
                 {{"engine-1", 13}, {"engine-2", std::nullopt}},
                 milliseconds(10000),
                 4026531836,
                 milliseconds(9999),
                 {12, 14}}};

TEST(LockdProtocol, EveryMessageComesBackAsItWas) {
  for (const LockdRequest& request : kRequests) {
    EXPECT_EQ(decode_request(without_newline(encode_request(request))), request);
  }
  for (const LockdAnswer& answer : kAnswers) {
    EXPECT_EQ(decode_answer(without_newline(encode_answer(answer))), answer);
  }
}

TEST(LockdProtocol, IsWhatThePageShows) {
  EXPECT_EQ(decode_request(R"({"request":"acquire","engine_id":"engine-0"})"), kRequests[0]);
  EXPECT_EQ(decode_request(R"({"request":"status"})"), kRequests[2]);
  EXPECT_EQ(encode_answer(kAnswers[2]),
            R"({"answer":"granted","engine_id":"engine-0","generation":7,)"
            R"("granted_at":"2026-11-21T05:33:00.123Z","reconnect_window_ms":10000})"
            "\n");
  EXPECT_EQ(encode_answer(kAnswers[1]),
            R"({"answer":"waiting","generation":null,"holder":null,"reconnect_window_ms":0})"
            "\n");
}

TEST(LockdProtocol, EveryTruncationIsRefused) {
  for (const LockdRequest& request : kRequests) {
    const std::string line = without_newline(encode_request(request));
    for (std::size_t size = 0; size < line.size(); ++size) {
      EXPECT_EQ(failure_of([&] { decode_request(line.substr(0, size)); }).status,
                ExitStatus::kProtocol)
          << line.substr(0, size);
    }
  }
  for (const LockdAnswer& answer : kAnswers) {
    const std::string line = without_newline(encode_answer(answer));
    for (std::size_t size = 0; size < line.size(); ++size) {
      EXPECT_EQ(failure_of([&] { decode_answer(line.substr(0, size)); }).status,
                ExitStatus::kProtocol)
          << line.substr(0, size);
    }
  }
}

TEST(LockdProtocol, MembersThatNobodyKnowsArePassedOver) {
  EXPECT_EQ(decode_request(R"({"request":"acquire","engine_id":"engine-0","x":[{"y":1}]})"),
            kRequests[0]);
  EXPECT_EQ(
      decode_answer(
          R"({"z":0,"answer":"waiting","holder":null,"generation":null,"reconnect_window_ms":0})"),
      kAnswers[1]);
}

TEST(LockdProtocol, GarbageIsRefused) {
  for (
      const std::string line :
      {"",
       "null",
       "[]",
       "7",
       "\"acquire\"",
       "{}",
       R"({"request":7})",
       R"({"request":"resign"})",
       R"({"request":"acquire"})",
       R"({"request":"acquire","engine_id":7})",
       R"({"request":"acquire","engine_id":"e","generation":0})",
       R"({"request":"acquire","engine_id":"e","generation":-1})",
       R"({"request":"acquire","engine_id":"e","generation":1.5})",
       R"({"request":"acquire","engine_id":"e","generation":null})",
       R"({"request":"acquire","engine_id":"e","generation":"7"})",
       R"({"request":"acquire","engine_id":"e","generation":4503599627370497})",
       R"({"request":"acquire","engine_id":"e","generation":7,"token":7})",
       R"({"request":"acquire","engine_id":"e","generation":7,"token":""})",
       R"({"request":"acquire","engine_id":"e","generation":7,"token":"0123456789abcdef0123456789abcdeF"})",
       R"({"request":"acquire","engine_id":"e","generation":7,"token":"0123456789abcdef0123456789abcdef0"})",
       R"({"request":"heartbeat"})",
       R"({"request":"heartbeat","sequence":-1})",
       R"({"request":"heartbeat","sequence":9007199254740993})",
       R"({"request":"heartbeat","sequence":"1"})",
       R"({"request":"status"} {})",
       "{\"request\":\"acquire\",\"engine_id\":\"\xff\"}",
       R"({"answer":"granted"})"}) {
    EXPECT_EQ(failure_of([&] { decode_request(line); }).status, ExitStatus::kProtocol) << line;
  }
  for (
      const std::string line :
      {R"({"answer":"granted","engine_id":"e","generation":0,"granted_at":"2026-11-21T05:33:00.123Z","reconnect_window_ms":1})",
       R"({"answer":"granted","engine_id":"e","generation":7,"granted_at":"today","reconnect_window_ms":1})",
       R"({"answer":"granted","engine_id":"e","generation":7,"granted_at":"2026-11-21T05:33:00.123Z","reconnect_window_ms":-1})",
       R"({"answer":"heartbeat","sequence":1})", R"({"answer":"heartbeat","expiry_ms":1000})",
       R"({"answer":"heartbeat","sequence":1,"expiry_ms":499})",
       R"({"answer":"heartbeat","sequence":1,"expiry_ms":3600001})",
       R"({"answer":"heartbeat","sequence":-1,"expiry_ms":1000})",
       R"({"answer":"refused","status":0,"reason":""})",
       R"({"answer":"refused","status":256,"reason":""})",
       R"({"answer":"refused","status":75,"reason":null})",
       R"({"answer":"status","holder":null,"generation":0,"granted_at":null,"connections":{},"waiters":[],"reconnect_window_ms":0,"pid_ns":1,"window_left_ms":null,"awaited_pids":[]})",
       R"({"answer":"status","holder":null,"generation":0,"granted_at":null,"connections":[7],"waiters":[],"reconnect_window_ms":0,"pid_ns":1,"window_left_ms":null,"awaited_pids":[]})",
       R"({"answer":"status","holder":null,"generation":0,"granted_at":null,"connections":[],"waiters":[],"reconnect_window_ms":0,"pid_ns":1,"window_left_ms":null,"awaited_pids":[0]})",
       R"({"request":"status"})"}) {
    EXPECT_EQ(failure_of([&] { decode_answer(line); }).status, ExitStatus::kProtocol) << line;
  }
}

TEST(LockdProtocol, DeepNestingIsNoProblem) {
  const std::string open(kMaxRequestBytes - 1, '[');
  EXPECT_EQ(failure_of([&] { decode_request(open); }).status, ExitStatus::kProtocol);
}

TEST(LockdProtocol, ABadEngineIdIsBadConfiguration) {
  const auto ask = [](const std::string& id) {
    return failure_of([&] { decode_request(without_newline(encode_request(AcquireRequest{id}))); });
  };
  EXPECT_EQ(ask("").status, ExitStatus::kConfig);
  EXPECT_EQ(ask("a\nb").message, "use lock id 'a\\x0ab': has control characters");
  EXPECT_EQ(ask(std::string(256, 'x')).status, ExitStatus::kConfig);
}

TEST(LockdProtocol, ALongRequestIsRefused) {
  std::string line = without_newline(encode_request(StatusRequest{}));
  line.resize(kMaxRequestBytes - 1, ' ');
  EXPECT_EQ(decode_request(line), kRequests[2]);
  EXPECT_EQ(failure_of([&] { decode_request(line + " "); }).status, ExitStatus::kProtocol);
}

TEST(LockdProtocol, TheLongestStatusFitsItsLimit) {
  StatusAnswer answer;
  const std::string id(kMaxIdBytes, '"');
  answer.holder = id;
  answer.connections.resize(5000, {1 << 22, false});
  answer.waiters.resize(5000, {id, 1 << 22});
  answer.awaited_pids.resize(5000, 1 << 22);
  const std::string line = encode_answer(answer);
  EXPECT_LE(line.size(), kMaxAnswerBytes);
  const auto read = std::get<StatusAnswer>(decode_answer(without_newline(line)));
  EXPECT_EQ(read.waiters.size(), kMaxListed);
  EXPECT_EQ(read.connections.size(), kMaxListed);
  EXPECT_EQ(read.awaited_pids.size(), kMaxListed);
}

}  // namespace
}  // namespace fo::lock
