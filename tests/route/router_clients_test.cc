// Clients that leave, and clients that are too many. Dynamo: test_request_cancellation_* and
// admission_control.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <boost/asio/post.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fleet/card/digest.h"
#include "http/sse.h"
#include "http/support.h"
#include "route/fleet.h"
#include "route/router.h"
#include "support/must_run.h"
#include "support/sanitizers.h"

namespace fo::test {
namespace {

using nlohmann::json;

/// One worker, whose request must end when its client leaves.
class Cancellation : public FdCounting {
 protected:
  explicit Cancellation(std::uint64_t slots = 64) {
    fleet_.add_engine({}, [slots](route::Worker& worker) { worker.slots = slots; });
  }
  void leave(const Client& client) {
    client->disconnect();
    fleet_.run_until([this] { return fleet_.busy(0) == 0 && fleet_.requests().size() == 0; });
    EXPECT_EQ(fleet_.counts(0).aborted, 1U);
    EXPECT_EQ(fleet_.counts(0).requests, 1U) << "it is not sent to any worker again";
    EXPECT_EQ(fleet_.worker(0).requests, 0U);
    EXPECT_EQ(fleet_.worker(0).tokens, 0U);
    EXPECT_EQ(fleet_.worker(0).health.state(), fleet::HealthState::kHealthy);
    EXPECT_THAT(fleet_.router().metrics_text(),
                testing::HasSubstr(R"(model="oracle",code="499",tier="premium"} 1)"));
    EXPECT_EQ(fleet_.ask(chat(true))->status(), 200);
  }

  Fleet fleet_;
};

TEST_F(Cancellation, BeforeTheFirstToken) {
  const Client client = fleet_.begin(chat(true, 8, {{"fail", "stall@start"}}));
  fleet_.run_until([this] { return fleet_.busy(0) == 1; });
  leave(client);
}

TEST_F(Cancellation, InTheQueueOfTheEngine) {
  fleet_.engine(0).knobs().slots = 1;
  const Client first = fleet_.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([this] { return fleet_.counts(0).running == 1; });
  const Client client = fleet_.begin(chat(true));
  fleet_.run_until([this] { return fleet_.counts(0).waiting == 1; });
  client->disconnect();
  fleet_.run_until([this] { return fleet_.counts(0).waiting == 0; });
  EXPECT_EQ(fleet_.counts(0).running, 1U);
}

TEST_F(Cancellation, InMidStream) {
  const Client client = fleet_.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([&] { return client->events().size() >= 3; });
  leave(client);
}

TEST_F(Cancellation, OfAnAnswerInOnePiece) {
  const Client client = fleet_.begin(chat(false, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([this] { return fleet_.counts(0).generation_tokens == 3; });
  leave(client);
}

TEST_F(Cancellation, OfACompletion) {
  const Client client = fleet_.begin(
      {{"model", "oracle"}, {"prompt", "Which way?"}, {"oracle", {{"fail", "stall@3"}}}},
      "/v1/completions");
  fleet_.run_until([this] { return fleet_.counts(0).generation_tokens == 3; });
  leave(client);
}

TEST_F(Cancellation, WhileTheWorkerSendsWhatTheClientDoesNotRead) {
  const Client client = fleet_.begin(chat(true, 20'000));
  fleet_.run_until([&] { return client->events().size() >= 3; });
  leave(client);
}

/// The text of a chat's stream.
std::string text_of_events(std::string_view events) {
  std::string text;
  http::SseReader reader;
  while (const auto event = reader.next(events)) {
    const json chunk = json::parse(event->data, nullptr, false);
    if (!chunk.is_object()) continue;
    for (const json& choice : chunk["choices"]) text += choice["delta"].value("content", "");
  }
  return text;
}

/// One worker, and a client that does not read its answer unless it is told to.
class Unread : public FdCounting {
 protected:
  explicit Unread(const http::ServerLimits& limits = route::ServeOptions().limits)
      : fleet_(in_turns(), quick_checks(), limits) {
    fleet_.add_engine();
    http::Listener listener = http::test::small_listener();
    fleet_.listen(std::move(listener.fd));
    http::test::limit_buffers(client_.fd());
    client_.connect(listener.port);
  }
  void send(const json& body, const std::string& headers = "") {
    const std::string text = body.dump();
    client_.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + headers +
                 "Content-Length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  /// What the router was ready to send.
  std::uint64_t sent() {
    const json list = fleet_.requests();
    return list.empty() ? 0 : list[0]["sent_bytes"].get<std::uint64_t>();
  }
  /// Waits until the router waits for the client. Returns what it was ready to send.
  std::uint64_t wait_until_blocked() {
    fleet_.run_until([this] { return sent() >= kKept; });
    std::uint64_t before = 0;
    for (int idle_turns = 0; idle_turns < 100; ++idle_turns) {
      fleet_.loop().run_ready();
      const std::uint64_t now = sent();
      if (std::exchange(before, now) != now) idle_turns = 0;
    }
    return before;
  }
  void expect_cancelled() {
    fleet_.run_until([this] { return fleet_.busy(0) == 0 && fleet_.requests().empty(); });
    EXPECT_EQ(fleet_.counts(0).aborted, 1U);
    EXPECT_EQ(fleet_.worker(0).requests, 0U);
    EXPECT_EQ(fleet_.worker(0).health.state(), fleet::HealthState::kHealthy);
    EXPECT_THAT(fleet_.router().metrics_text(),
                testing::HasSubstr(R"(model="oracle",code="499",tier="premium"} 1)"));
  }
  /// Reads until `done()`.
  void read_until(const std::function<bool()>& done) {
    fleet_.run_until([&] {
      char buffer[65536];
      const ssize_t count = ::recv(client_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count > 0) got_.append(buffer, static_cast<std::size_t>(count));
      return done();
    });
  }

  static constexpr std::uint64_t kKept = std::uint64_t{1} << 20;
  Fleet fleet_;
  http::test::RawClient client_;
  std::string got_;
};

TEST_F(Unread, AnAnswerHoldsItsWorkerUpOnceAMebibyteIsKept) {
  const json body = chat(true, 20'000);
  const std::string text = fleet_.text_of(body);
  send(body);
  EXPECT_LT(wait_until_blocked(), kKept + kKept / 2);
  read_until([this] { return got_.ends_with("\r\n0\r\n\r\n"); });
  EXPECT_GT(got_.size(), 2 * kKept);
  EXPECT_TRUE(text_of_events(http::test::body_of_chunks(got_)) == text);
}

TEST_F(Unread, AnAnswerLeavesNoMemoryOnceItIsRead) {
  if (kHasSanitizers) FO_SKIP("release", "sanitizers have an allocator of their own");
  const auto used = [] {
    const struct mallinfo2 heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const std::size_t before = used();
  send(chat(true, 20'000, {{"fail", "stall@5000"}}));
  fleet_.run_until([&] { return used() > before + kKept / 2; });
  std::size_t count = 0;
  read_until([&] {
    count += got_.size();
    got_.clear();
    return count >= sent();
  });
  fleet_.run_until([&] { return used() < before + kKept / 2; });
}

TEST_F(Unread, AnOperatorEndsAnAnswerThatIsNotRead) {
  send(chat(true, 20'000));
  wait_until_blocked();
  EXPECT_TRUE(fleet_.router().kill(fleet_.requests()[0]["id"]));
  fleet_.run_until([this] { return fleet_.requests().empty() && fleet_.busy(0) == 0; });
  EXPECT_EQ(fleet_.worker(0).requests, 0U);
}

TEST_F(Unread, ADeadlineEndsAnAnswerThatIsNotRead) {
  send(chat(true, 20'000), "x-request-timeout: 1\r\n");
  fleet_.run_until([this] { return fleet_.counts(0).generation_tokens > 0; });
  fleet_.run_until([this] { return fleet_.requests().empty() && fleet_.busy(0) == 0; });
  EXPECT_EQ(fleet_.worker(0).requests, 0U);
}

TEST_F(Unread, AClientThatLeavesEndsTheWorkersRequest) {
  send(chat(true, 20'000, {{"fail", "stall@5000"}}));
  fleet_.run_until([this] { return fleet_.counts(0).generation_tokens == 5000; });
  client_.close();
  expect_cancelled();
}

TEST(RouterClients, TokensOfAnAnswerInOnePieceCountEvenIfItsClientLeaves) {
  route::RouterOptions options = in_turns();
  options.keys.emplace();
  (*options.keys)[fleet::sha256_hex("k")] = {.tokens_per_minute = 1000};
  Fleet fleet(1, std::move(options));
  oracle::Knobs& knobs = fleet.engine(0).knobs();
  knobs.fail = oracle::parse_fault("stall@500");
  knobs.fail_next = 1;
  json body = chat(false, 600);
  body.erase("oracle");
  http::Listener listener = http::test::small_listener();
  fleet.listen(std::move(listener.fd));
  http::test::RawClient client;
  client.connect(listener.port);
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\n");
  client.send("Content-Length: " + std::to_string(body.dump().size()) + "\r\n\r\n" + body.dump());
  fleet.run_until([&] { return fleet.counts(0).generation_tokens == 500; });
  // The last tokens are on their way.
  for (int turns = 0; turns < 100; ++turns) fleet.loop().run_ready();
  client.close();
  fleet.run_until([&] { return fleet.requests().empty(); });
  const http::Fields key{{"authorization", "Bearer k"}};
  EXPECT_EQ(fleet.ask(body, "/v1/chat/completions", key)->status(), 429);
}

class UnreadForLong : public Unread {
 protected:
  UnreadForLong()
      : Unread({.write_timeout = std::chrono::milliseconds(300), .kept_bytes = 64 * base::kKiB}) {}
};

TEST_F(UnreadForLong, AnAnswerIsCut) {
  // Otherwise all of it may be in buffers by then.
  fleet_.engine(0).knobs().gap = std::chrono::milliseconds(1);
  send(chat(true, 20'000));
  fleet_.run_until([this] { return sent() > 0; });
  expect_cancelled();
}

class Burst : public Cancellation {
 protected:
  Burst() : Cancellation(16) {}
};

// Half of them are in the queue of the router.
TEST_F(Burst, ManyCancelledRequestsHoldNoSlot) {
  std::vector<Client> clients;
  for (int i = 0; i < 32; ++i) {
    clients.push_back(fleet_.begin(chat(i % 2 == 0, 8, {{"fail", "stall@3"}})));
  }
  fleet_.run_until([this] { return fleet_.busy(0) == 16 && fleet_.requests().size() == 32; });
  for (const Client& client : clients) client->disconnect();
  fleet_.run_until([this] { return fleet_.busy(0) == 0 && fleet_.requests().size() == 0; });
  const route::Worker& worker = fleet_.worker(0);
  EXPECT_EQ(worker.requests, 0U);
  EXPECT_EQ(worker.tokens, 0U);
  EXPECT_EQ(worker.health.state(), fleet::HealthState::kHealthy);
  EXPECT_EQ(fleet_.ask(chat(true))->status(), 200);
}

class OneSlot : public Cancellation {
 protected:
  OneSlot() : Cancellation(1) {}
};

TEST_F(OneSlot, ACancelledRequestLeavesTheQueueOfTheRouter) {
  const Client first = fleet_.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([&] { return first->events().size() >= 3; });
  const Client second = fleet_.begin(chat(true));
  const Client third = fleet_.begin(chat(true));
  fleet_.run_until([&] { return fleet_.requests().size() == 3; });
  second->disconnect();
  fleet_.run_until([&] { return fleet_.requests().size() == 2; });
  EXPECT_EQ(fleet_.counts(0).requests, 1U);
  first->disconnect();
  fleet_.run_until([&] { return third->has_ended(); });
  EXPECT_EQ(third->status(), 200);
  EXPECT_EQ(fleet_.counts(0).requests, 2U);
}

TEST_F(OneSlot, ARequestThatIsCancelledWhileItGetsAWorkerHoldsNoSlot) {
  route::Worker& worker = fleet_.worker(0);
  const Client first = fleet_.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([&] { return first->events().size() >= 3; });
  const Client second = fleet_.begin(chat(true));
  fleet_.run_until([&] { return fleet_.requests().size() == 2; });
  // The loop sees the client's end after the slot is given, and before the request wakes up.
  second->disconnect();
  boost::asio::post(fleet_.executor(), [&] {
    worker.slots = 2;
    fleet_.router().on_change();
  });
  fleet_.run_until([&] { return fleet_.requests().size() == 1; });
  EXPECT_EQ(worker.requests, 1U);
}

TEST_F(OneSlot, AnOperatorEndsARequestInTheQueue) {
  const Client first = fleet_.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet_.run_until([&] { return first->events().size() >= 3; });
  const Client second = fleet_.begin(chat(true));
  fleet_.run_until([this] { return fleet_.requests().size() == 2; });
  const json list = fleet_.requests();
  EXPECT_TRUE(list[1]["worker"].is_null());
  EXPECT_TRUE(fleet_.router().kill(list[1]["id"]));
  fleet_.run_until([&] { return second->has_ended(); });
  EXPECT_EQ(second->status(), 503);
  EXPECT_EQ(second->error_code(), "request_killed");
  EXPECT_FALSE(first->has_ended());
}

TEST_F(Cancellation, AnOperatorEndsAnAnswerThatWaitsToBeResumed) {
  fleet_.engine(0).knobs().fail = oracle::parse_fault("stall@3");
  json body = chat(true);
  body.erase("oracle");
  const Client client = fleet_.begin(body);
  fleet_.run_until([&] { return client->events().size() >= 3; });
  fleet_.kill(0);
  fleet_.run_until([this] { return fleet_.requests()[0]["worker"].is_null(); });
  EXPECT_TRUE(fleet_.router().kill(fleet_.requests()[0]["id"]));
  fleet_.run_until([&] { return client->has_ended(); });
  EXPECT_TRUE(client->is_whole());
  EXPECT_EQ(client->error_code(), "request_killed");
}

TEST_F(Cancellation, TheClientsDeadlineEndsTheWorkersRequest) {
  for (const bool is_streamed : {true, false}) {
    const Client client = fleet_.ask(chat(is_streamed, 8, {{"fail", "stall@start"}}),
                                     "/v1/chat/completions", {{"x-request-timeout", "200ms"}});
    EXPECT_EQ(client->status(), 504);
    EXPECT_EQ(client->error_code(), "timeout");
    fleet_.run_until([this] { return fleet_.busy(0) == 0; });
  }
  EXPECT_EQ(fleet_.counts(0).requests, 2U) << "no worker is asked after the deadline";
  EXPECT_EQ(fleet_.worker(0).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(Cancellation, TheDeadlineOfAStreamIsAnErrorInIt) {
  const Client client = fleet_.ask(chat(true, 8, {{"fail", "stall@3"}}), "/v1/chat/completions",
                                   {{"x-request-timeout", "1s"}});
  EXPECT_EQ(client->status(), 200);
  EXPECT_TRUE(client->is_whole());
  EXPECT_EQ(client->error_code(), "timeout");
  fleet_.run_until([this] { return fleet_.busy(0) == 0; });
}

class Overload : public FdCounting {
 protected:
  /// Fills the only slot, and the queue of the router.
  void fill(Fleet& fleet, std::size_t queued) {
    fleet.add_engine({}, [](route::Worker& worker) { worker.slots = 1; });
    for (std::size_t i = 0; i < 1 + queued; ++i) {
      calls_.push_back(fleet.begin(chat(true, 8, {{"fail", "stall@3"}})));
    }
    fleet.run_until([&] { return fleet.requests().size() == calls_.size() && fleet.busy(0) == 1; });
  }
  static void expect_retry_after(const Client& call) {
    const auto pause = base::parse_uint(call->header("retry-after"));
    ASSERT_TRUE(pause);
    EXPECT_GE(*pause, 1U);
    EXPECT_LE(*pause, 60U);
  }

  std::vector<Client> calls_;
};

TEST_F(Overload, AFullQueueRefusesAtOnce) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.requests = 2;
  Fleet fleet(std::move(options));
  fill(fleet, 2);
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->status(), 503);
  EXPECT_EQ(call->error_code(), "queue_full");
  expect_retry_after(call);
  EXPECT_EQ(fleet.counts(0).requests, 1U);
}

TEST_F(Overload, TheQueueIsBoundedInTokens) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.tokens = 2000;
  Fleet fleet(std::move(options));
  fill(fleet, 1);
  json large = chat(true);
  large["messages"][0]["content"] = std::string(8000, 'x');
  EXPECT_EQ(fleet.ask(large)->error_code(), "queue_full");
  const Client small = fleet.begin(chat(true));
  fleet.run_until([&] { return fleet.requests().size() == 3; });
  EXPECT_FALSE(small->has_ended());
}

TEST_F(Overload, ARequestDoesNotWaitForever) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.timeout = std::chrono::milliseconds(200);
  options.dispatch.overload_status = 529;
  Fleet fleet(std::move(options));
  fill(fleet, 0);
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->status(), 529);
  expect_retry_after(call);
  EXPECT_EQ(fleet.counts(0).requests, 1U);
}

TEST_F(Overload, ARequestThatIsTooLargeForTheOthersCachesWaitsForAnIdleWorker) {
  Fleet fleet;
  fleet.add_engine({}, [](route::Worker& worker) { worker.kv_tokens = 2000; });
  const Client first = fleet.begin(chat(true, 8, {{"fail", "stall@3"}}));
  fleet.run_until([&] { return fleet.busy(0) == 1; });
  json large = chat(true);
  large["messages"][0]["content"] = std::string(16'000, 'x');
  const Client second = fleet.begin(large);
  fleet.run_until([&] { return fleet.requests().size() == 2; });
  EXPECT_EQ(fleet.counts(0).requests, 1U);
  first->disconnect();
  fleet.run_until([&] { return second->has_ended(); });
  EXPECT_EQ(second->status(), 200);
}

TEST_F(Overload, WithoutAWorkerARequestWaitsAndThenFails) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.timeout = std::chrono::milliseconds(200);
  Fleet fleet(1, std::move(options));
  fleet.kill(0);
  fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->status(), 503);
  expect_retry_after(call);
}

}  // namespace
}  // namespace fo::test
