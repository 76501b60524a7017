// Workers that fail. The scenarios are those of Dynamo's tests of fault tolerance (migration,
// deploy/scenarios, etcd_ha) and the rows of the table in lib/route/outcome.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loop/pause.h"
#include "route/answer/outcome.h"
#include "route/fleet.h"
#include "route/load.h"
#include "route/resume/poison_guard.h"
#include "route/router.h"
#include "route/scripted_worker.h"

namespace fo::test {
namespace {

using fleet::HealthState;
using nlohmann::json;

void set_fault(Fleet& fleet, std::size_t engine, const std::string& fault, std::uint64_t times) {
  oracle::Knobs& knobs = fleet.engine(engine).knobs();
  knobs.fail = oracle::parse_fault(fault);
  knobs.fail_next = times;
}

void refuse(Fleet& fleet, std::size_t engine, std::uint64_t status, std::uint64_t times = 1) {
  oracle::Knobs& knobs = fleet.engine(engine).knobs();
  knobs.refuse_status = status;
  knobs.refuse_next = times;
}

/// What the test's name can contain of a fault or a path.
std::string as_name(std::string text) {
  std::erase_if(text, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return text;
}

/// The text as a chunk of a body.
std::string chunk_of(const std::string& text) {
  std::ostringstream chunk;
  chunk << std::hex << text.size() << "\r\n" << text << "\r\n";
  return chunk.str();
}

class EachFault : public FdCounting, public testing::WithParamInterface<const char*> {};

// Dynamo: test_request_migration_*, before the first token.
class FaultBeforeTheFirstToken : public EachFault {};

TEST_P(FaultBeforeTheFirstToken, AnotherWorkerAnswers) {
  Fleet fleet(2);
  const std::string text = fleet.text_of(chat(true));
  for (const bool is_streamed : {true, false}) {
    set_fault(fleet, 0, GetParam(), 1);
    const auto faults = fleet.counts(0).faults;
    // The next one in turn is the first worker, or it is passed over until it is.
    for (;;) {
      const Client call = fleet.ask(chat(is_streamed));
      EXPECT_EQ(call->status(), 200);
      EXPECT_EQ(call->text(), text);
      EXPECT_TRUE(call->is_whole());
      if (fleet.counts(0).faults > faults) break;
    }
    EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
    EXPECT_EQ(fleet.worker(1).health.state(), HealthState::kHealthy);
  }
}

INSTANTIATE_TEST_SUITE_P(, FaultBeforeTheFirstToken,
                         testing::Values("reset@start", "cut@start", "error@start", "abort@start",
                                         "reset@0", "cut@0", "half@0", "end@0", "error@0",
                                         "abort@0"),
                         [](const auto& fault) { return as_name(fault.param); });

class FaultInAnAnswer : public EachFault {};

// Dynamo: test_request_migration_*, stream.
TEST_P(FaultInAnAnswer, AStreamEndsWithAnHonestError) {
  Fleet fleet(2);
  const std::string text = fleet.text_of(chat(true, 16));
  const Client call = fleet.ask(chat(true, 16, {{"fail", GetParam()}, {"gap", "2ms"}}));
  EXPECT_EQ(call->status(), 200);
  EXPECT_TRUE(call->is_whole()) << "the answer ends as HTTP frames it";
  const std::vector<std::string> events = call->events();
  ASSERT_FALSE(events.empty());
  const json error = json::parse(events.back())["error"];
  EXPECT_EQ(error["code"], "worker_lost");
  EXPECT_GE(error["delivered_tokens"], 1);
  EXPECT_FALSE(call->text().empty());
  EXPECT_TRUE(text.starts_with(call->text())) << call->text();
  EXPECT_NE(text, call->text());
  EXPECT_EQ(fleet.counts(1).requests, 0U);
}

// Dynamo: the same, unary.
TEST_P(FaultInAnAnswer, AnAnswerInOnePieceComesFromAnotherWorker) {
  Fleet fleet(2);
  set_fault(fleet, 0, GetParam(), 1);
  const Client call = fleet.ask(chat(false, 16));
  EXPECT_EQ(call->status(), 200);
  EXPECT_EQ(call->text(), fleet.text_of(chat(false, 16)));
  EXPECT_EQ(fleet.counts(0).faults, 1U);
}

INSTANTIATE_TEST_SUITE_P(, FaultInAnAnswer,
                         testing::Values("reset@8", "cut@8", "half@8", "end@8", "error@8",
                                         "abort@8"),
                         [](const auto& fault) { return as_name(fault.param); });

// A request of an API that is only passed on goes to another worker if the first one fails before a
// byte of its answer.
class FaultUnderAnotherApi : public EachFault {};

TEST_P(FaultUnderAnotherApi, AnotherWorkerAnswersBeforeTheFirstByte) {
  using Peer = ScriptedWorker::Peer;
  Fleet fleet;
  ScriptedWorker broken(fleet.executor(),
                        [](Peer& peer, const std::string&) { return peer.write(""); });
  std::string received;
  ScriptedWorker sound(fleet.executor(), [&](Peer& peer, std::string request) {
    received = std::move(request);
    return peer.write(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        "\r\n{\"is\":\"whole\"}");
  });
  fleet.add_worker(broken.url());
  fleet.add_worker(sound.url());
  const json body{{"model", "oracle"}, {"input", "a"}, {"messages", json::array()}};
  while (broken.requests() == 0) {
    const Client call = fleet.ask(body, GetParam());
    EXPECT_EQ(call->status(), 200) << call->body();
    EXPECT_EQ(call->body(), R"({"is":"whole"})");
    EXPECT_TRUE(received.starts_with(std::string("POST ") + GetParam() + " HTTP/1.1\r\n"));
  }
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
  EXPECT_EQ(fleet.worker(1).health.state(), HealthState::kHealthy);
}

INSTANTIATE_TEST_SUITE_P(, FaultUnderAnotherApi,
                         testing::Values("/v1/embeddings", "/v1/messages", "/v1/responses",
                                         "/v1/rerank", "/v1/score", "/tokenize", "/detokenize",
                                         "/v1/audio/speech"),
                         [](const auto& path) { return as_name(path.param); });

class CutStreamOfAnotherApi : public EachFault {};

// Its clients do not know the router's error, so that its end is that of the worker's.
TEST_P(CutStreamOfAnotherApi, EndsIncompleteAndIsNotSentAgain) {
  using Peer = ScriptedWorker::Peer;
  const std::string event = "event: a\ndata: {\"type\":\"a\"}\n\n";
  Fleet fleet;
  ScriptedWorker broken(fleet.executor(), [&](Peer& peer, const std::string&) {
    return peer.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        "Transfer-Encoding: chunked\r\n\r\n" +
        chunk_of(event));
  });
  fleet.add_worker(broken.url());
  const json body{
      {"model", "oracle"}, {"input", "a"}, {"messages", json::array()}, {"stream", true}};
  const Client call = fleet.ask(body, GetParam());
  EXPECT_EQ(call->status(), 200);
  EXPECT_EQ(call->body(), event);
  EXPECT_FALSE(call->is_whole());
  EXPECT_EQ(broken.requests(), 1);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
}

INSTANTIATE_TEST_SUITE_P(, CutStreamOfAnotherApi, testing::Values("/v1/responses", "/v1/messages"),
                         [](const auto& path) { return as_name(path.param); });

class RouterFaults : public FdCounting {};

// Dynamo: decode_worker, sglang_engine, …: the process is killed.
TEST_F(RouterFaults, AKilledWorkersRequestsWithoutATokenAreAnsweredByAnother) {
  Fleet fleet(2);
  fleet.engine(0).knobs().fail = oracle::parse_fault("stall@start");
  std::vector<Client> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(fleet.begin(chat(i % 2 == 0)));
  fleet.run_until([&] { return fleet.busy(0) == 4 && fleet.counts(1).length == 4; });
  fleet.kill(0);
  for (const Client& call : calls) {
    fleet.run_until([&] { return call->has_ended(); });
    EXPECT_EQ(call->status(), 200);
    EXPECT_EQ(call->text(), fleet.text_of(chat(true)));
  }
  // What is asked now does not wait for the dead one.
  EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
  // It comes back by itself.
  fleet.start(0);
  fleet.run_until([&] { return fleet.worker(0).is_reachable; });
}

TEST_F(RouterFaults, ARefusedConnectionIsNoFault) {
  route::WorkerMonitor::Options monitor = quick_checks();
  // Only requests find out.
  monitor.check = std::chrono::hours(1);
  Fleet fleet(in_turns(), monitor);
  fleet.add_engines(2);
  fleet.kill(0);
  EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  EXPECT_FALSE(fleet.worker(0).is_reachable);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  EXPECT_EQ(fleet.worker(0).health.weight(base::Deadline::Clock::now().time_since_epoch()), 1.0);
}

// A standby binds the same address.
TEST_F(RouterFaults, ARequestWaitsForTheOnlyWorkerToComeBack) {
  Fleet fleet(1);
  fleet.kill(0);
  const Client call = fleet.begin(chat(false));
  fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
  EXPECT_FALSE(call->has_ended());
  fleet.start(0);
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(call->status(), 200);
}

TEST_F(RouterFaults, AServerErrorOfTwoWorkersIsTheClients) {
  for (const char* fault : {"error@start", "error@0"}) {
    Fleet fleet(3);
    for (std::size_t i = 0; i < 3; ++i) set_fault(fleet, i, fault, 0);
    const Client call = fleet.ask(chat(true));
    EXPECT_EQ(call->status(), 500);
    EXPECT_EQ(call->header("x-should-retry"), "false");
    EXPECT_EQ(call->error_message(), "the oracle fails on purpose");
    EXPECT_EQ(fleet.counts(0).faults + fleet.counts(1).faults + fleet.counts(2).faults, 2U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(fleet.worker(i).health.state(), HealthState::kHealthy) << fault;
    }
  }
}

TEST_F(RouterFaults, AServerErrorOfALoneWorkerSaysNothingOfIt) {
  Fleet fleet(1);
  set_fault(fleet, 0, "error@start", 1);
  EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  set_fault(fleet, 0, "error@start", 0);
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->status(), 500);
  EXPECT_NE(call->header("x-should-retry"), "false") << "another worker may succeed";
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

TEST_F(RouterFaults, AnswersThatBeganBeforeTheFaultDoNotEndTheProbation) {
  Fleet fleet;
  fleet.health_rules.cool_down = base::Duration::zero();
  fleet.add_engine();
  std::vector<Client> calls;
  for (int i = 0; i < 6; ++i) calls.push_back(fleet.begin(chat(true, 8, {{"gap", "100ms"}})));
  const auto have_begun = [&] {
    return std::ranges::all_of(calls, [](const Client& call) { return !call->text().empty(); });
  };
  fleet.run_until(have_begun);
  route::Worker& worker = fleet.worker(0);
  worker.last_fault = base::Deadline::Clock::now();
  for (int i = 0; i < 3; ++i) {
    worker.health.apply(fleet::HealthEvent::kFault, route::time_now(), 0.5);
  }
  fleet.run_until([&] {
    return std::ranges::all_of(calls, [](const Client& call) { return call->has_ended(); });
  });
  for (const Client& call : calls) EXPECT_EQ(call->error_code(), "");
  EXPECT_EQ(worker.health.state(), HealthState::kProbation);
}

TEST_F(RouterFaults, AnErrorThatNamesTheClientsFaultIsPassedOn) {
  Fleet fleet;
  ScriptedWorker worker(fleet.executor(), [](ScriptedWorker::Peer& peer, const std::string&) {
    return peer.write(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        "data: {\"error\":{\"message\":\"too long\",\"code\":400}}\n\ndata: [DONE]\n\n");
  });
  fleet.add_worker(worker.url());
  fleet.add_engine();
  const Client call = fleet.ask(chat(true));
  EXPECT_EQ(call->status(), 400);
  EXPECT_EQ(call->error_message(), "too long");
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

TEST_F(RouterFaults, OtherErrorsOfTheRequestArePassedOn) {
  Fleet fleet(2);
  for (const std::uint64_t status : {400U, 409U, 413U, 422U}) {
    refuse(fleet, 0, status);
    refuse(fleet, 1, status);
    const Client call = fleet.ask(chat(false));
    EXPECT_EQ(call->status(), static_cast<int>(status));
    EXPECT_EQ(call->error_message(), "the oracle refuses on purpose");
    fleet.engine(0).knobs().refuse_next = fleet.engine(1).knobs().refuse_next = 0;
  }
  EXPECT_EQ(fleet.counts(0).refused + fleet.counts(1).refused, 4U);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

TEST_F(RouterFaults, AWorkersRefusalOfTheRouterIsNeverTheClients) {
  for (const std::uint64_t status : {401U, 403U, 404U}) {
    Fleet fleet(2);
    refuse(fleet, 0, status, 10);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200) << status;
    EXPECT_EQ(fleet.counts(0).refused, 1U) << "the worker is out";
    refuse(fleet, 1, status, 10);
    const Client call = fleet.ask(chat(false));
    EXPECT_EQ(call->status(), 502);
    EXPECT_EQ(call->error_code(), "worker_misconfigured");
    // Until it is started again.
    fleet.kill(0);
    fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
    fleet.start(0);
    fleet.run_until([&] { return fleet.worker(0).is_reachable; });
    EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  }
}

TEST_F(RouterFaults, AnOverloadedWorkersRequestGoesToAnother) {
  for (const std::uint64_t status : {429U, 503U, 529U}) {
    Fleet fleet(2);
    fleet.engine(0).knobs().retry_after = std::chrono::seconds(20);
    refuse(fleet, 0, status);
    EXPECT_EQ(fleet.ask(chat(false))->status(), 200) << status;
    EXPECT_EQ(fleet.counts(0).refused, 1U);
    const auto now = base::Deadline::Clock::now();
    EXPECT_TRUE(fleet.worker(0).slot_limit.is_overloaded(now));
    EXPECT_FALSE(fleet.worker(0).slot_limit.is_overloaded(now + std::chrono::seconds(21)));
    EXPECT_EQ(fleet.worker(0).slots_now(1), 32U);
    EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  }
}

TEST_F(RouterFaults, AnOverloadedWorkerGetsHalfOfWhatItHadRoomFor) {
  Fleet fleet;
  fleet.add_engine({}, [](route::Worker& worker) { worker.slots = 8; });
  refuse(fleet, 0, 429);
  std::vector<Client> calls{fleet.begin(chat(false))};
  fleet.run_until([&] { return fleet.counts(0).refused == 1; });
  while (calls.size() < 8) {
    calls.push_back(fleet.begin(chat(false, 8, {{"fail", "stall@0"}})));
    // One after another, so that the first of them gets a slot.
    fleet.run_until([&] { return fleet.requests().size() == calls.size(); });
  }
  fleet.run_until([&] { return fleet.busy(0) == 4; });
  fleet.run_until(
      [&] { return !fleet.worker(0).slot_limit.is_overloaded(base::Deadline::Clock::now()); });
  EXPECT_FALSE(calls[0]->has_ended()) << "it waits for a slot";
  calls[1]->disconnect();
  fleet.run_until([&] { return calls[0]->has_ended(); });
  EXPECT_EQ(calls[0]->status(), 200);
  // Its success is worth one slot more.
  fleet.run_until([&] { return fleet.busy(0) == 5; });
  EXPECT_EQ(fleet.requests().size(), 6U);
}

TEST_F(RouterFaults, AnEngineWithAQueueGetsNoMoreThanItRuns) {
  route::WorkerMonitor::Options monitor = quick_checks();
  monitor.load = std::chrono::milliseconds(5);
  monitor.load_timeout = std::chrono::seconds(10);
  Fleet fleet(in_turns(), monitor);
  oracle::EngineOptions engine;
  engine.knobs.slots = 4;
  fleet.add_engine(engine);
  std::vector<Client> calls;
  for (int i = 0; i < 12; ++i) calls.push_back(fleet.begin(chat(false, 8, {{"fail", "stall@0"}})));
  fleet.run_until([&] { return fleet.counts(0).waiting == 8; });
  fleet.run_until([&] { return fleet.worker(0).slots_now(1) == 4; });
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  fleet.add_engine();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, 12U);
  EXPECT_EQ(fleet.counts(1).requests, 4U);
}

TEST_F(RouterFaults, ALoneOverloadedWorkerIsAskedAgain) {
  Fleet fleet(1);
  refuse(fleet, 0, 503);
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, 2U);
}

TEST_F(RouterFaults, ALoneBusyWorkerIsAskedUntilTheTimeoutOfTheQueue) {
  Fleet fleet(1);
  refuse(fleet, 0, 429, 3);
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, 4U);
}

TEST_F(RouterFaults, AFleetThatRemainsBusyIsOverloaded) {
  route::RouterOptions options = in_turns();
  options.dispatch.queue.timeout = std::chrono::milliseconds(1);
  options.dispatch.overload_status = 529;
  Fleet fleet(3, std::move(options));
  for (std::size_t i = 0; i < 3; ++i) refuse(fleet, i, 503, 1);
  const Client call = fleet.ask(chat(false));
  EXPECT_EQ(call->status(), 529);
  EXPECT_EQ(call->error_code(), "overloaded");
  EXPECT_NE(call->header("retry-after"), "-");
}

// Its process may be one that ends: only the second retry is put off.
TEST_F(RouterFaults, ALoneWorkerThatResetsItsConnectionsIsAskedAgainAfterAPause) {
  Fleet fleet(1);
  set_fault(fleet, 0, "reset@start", 2);
  const auto begin = base::Deadline::Clock::now();
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_GE(base::Deadline::Clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(fleet.counts(0).requests, 3U);
}

// The least limit of the router is 5 s.
TEST_F(RouterFaults, AWorkerThatAnswersOnly503IsOutAsIfItsConnectionWasRefused) {
  Fleet fleet(2);
  route::Worker& worker = fleet.worker(0);
  const auto now = base::Deadline::Clock::now();
  for (const int seconds : {11, 5}) {
    worker.unavailability.on_unavailable(now - std::chrono::seconds(seconds), std::nullopt);
  }
  refuse(fleet, 0, 503, 1);
  while (worker.is_reachable && worker.incarnation == 1) {
    EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  }
  EXPECT_EQ(worker.health.state(), HealthState::kHealthy);
  fleet.run_until([&] { return worker.is_reachable && worker.incarnation == 2; });
}

TEST_F(RouterFaults, AWorkerWhoseStreamsAllStallIsHung) {
  Fleet fleet(1);
  const Client call = fleet.ask(chat(true, 8, {{"fail", "stall@3"}}));
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_TRUE(call->is_whole());
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
  fleet.run_until([&] { return fleet.busy(0) == 0; });
}

// The parser of a call may wait for the end of an argument, and other APIs have events only for
// parts of the answer.
TEST_F(RouterFaults, AWorkerIsNotHungIfItsOnlyStreamMayPause) {
  nlohmann::json tools = chat(true, 3, {{"gap", "1s"}});
  tools["tools"] = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  const nlohmann::json responses{{"model", "oracle"},
                                 {"input", "Which way?"},
                                 {"max_output_tokens", 3},
                                 {"stream", true},
                                 {"oracle", {{"gap", "1s"}}}};
  route::RouterOptions options = in_turns();
  options.times.stall = std::chrono::milliseconds(200);
  Fleet fleet(1, std::move(options));
  EXPECT_TRUE(fleet.ask(tools)->error_code().empty());
  const Client other = fleet.ask(responses, "/v1/responses");
  EXPECT_NE(other->body().find("response.completed"), std::string::npos) << other->body();
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  EXPECT_FALSE(fleet.worker(0).pace.mean_gap());
  tools["tool_choice"] = "none";
  EXPECT_EQ(fleet.ask(tools)->error_code(), "worker_lost");
}

TEST_F(RouterFaults, HiddenReasoningMayTakeLongerThanAFirstToken) {
  route::RouterOptions options = in_turns();
  options.times.first_token = std::chrono::milliseconds(200);
  Fleet fleet(1, std::move(options));
  nlohmann::json body = chat(true, 8, {{"first_token", "1s"}});
  body["include_reasoning"] = false;
  EXPECT_EQ(fleet.ask(body)->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

TEST_F(RouterFaults, ASilentStreamBesideMovingOnesIsNoFault) {
  route::RouterOptions options = in_turns();
  options.times.stream = std::chrono::milliseconds(300);
  Fleet fleet(1, std::move(options));
  const Client moving = fleet.begin(chat(true, 10'000, {{"gap", "5ms"}}));
  const Client silent = fleet.ask(chat(true, 8, {{"fail", "stall@3"}}));
  EXPECT_EQ(silent->error_code(), "worker_lost");
  EXPECT_FALSE(moving->has_ended());
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

// That of a short answer in one piece comes with its end.
TEST_F(RouterFaults, AnotherWorkerAnswersWhenTheFirstTokenIsLate) {
  for (const bool is_streamed : {true, false}) {
    route::RouterOptions options = in_turns();
    options.times.first_token = std::chrono::seconds(1);
    Fleet fleet(2, std::move(options));
    set_fault(fleet, 0, "stall@start", 1);
    const Client call = fleet.ask(chat(is_streamed));
    EXPECT_EQ(call->status(), 200);
    EXPECT_EQ(call->text(), fleet.text_of(chat(is_streamed)));
    EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
    fleet.run_until([&] { return fleet.counts(0).aborted == 1; });
  }
}

TEST_F(RouterFaults, AShortAnswerThatIsLateBesideOthersIsOverload) {
  route::RouterOptions options = in_turns();
  options.times.first_token = std::chrono::seconds(2);
  Fleet fleet(1, std::move(options));
  const Client late = fleet.begin(chat(false, 8, {{"first_token", "1h"}}));
  while (fleet.counts(0).aborted == 0) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

/// The first engine gives one request no token within a second, while another stream of it moves;
/// the second engine answers that request.
void expect_another_answers_a_late_one(Fleet& fleet) {
  fleet.add_engine();
  const Client moving = fleet.begin(chat(true, 10'000, {{"gap", "5ms"}}));
  fleet.run_until([&] { return !moving->text().empty(); });
  fleet.add_engine();
  set_fault(fleet, 0, "stall@start", 1);
  while (fleet.counts(0).requests < 2) EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

TEST_F(RouterFaults, ALateFirstTokenBesideMovingStreamsIsOverload) {
  route::RouterOptions options = in_turns();
  options.times.first_token = std::chrono::seconds(1);
  Fleet fleet(std::move(options));
  expect_another_answers_a_late_one(fleet);
  EXPECT_TRUE(fleet.worker(0).slot_limit.is_overloaded(base::Deadline::Clock::now()) ||
              fleet.worker(0).slots_now(1) < 64);
}

TEST_F(RouterFaults, ALateFirstTokenIsAskedElsewhereThoughTheQueueHasAShorterTimeout) {
  route::RouterOptions options = in_turns();
  options.times.first_token = std::chrono::seconds(1);
  options.dispatch.queue.timeout = std::chrono::milliseconds(500);
  Fleet fleet(std::move(options));
  expect_another_answers_a_late_one(fleet);
}

// --- Connections that were used before.

/// A worker that answers the first request on its first connection with requests, and closes that
/// connection a time after the second one. Later connections are answered.
class ClosingWorker {
 public:
  ClosingWorker(const boost::asio::any_io_executor& loop, base::Duration pause)
      : pause_(pause),
        server_(loop, [this](ScriptedWorker::Peer& peer, int) { return serve(peer, this); }) {}
  [[nodiscard]] std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_.origin().address.port);
  }

 private:
  static boost::asio::awaitable<void> serve(ScriptedWorker::Peer& peer, ClosingWorker* self) {
    bool is_first = false;
    for (;;) {
      const std::string request = co_await ScriptedWorker::answer_checks(peer);
      if (request.empty()) co_return;
      if (is_first) {
        co_await loop::pause_for(self->pause_);
        co_return;
      }
      is_first = std::exchange(self->is_new_, false);
      co_await peer.write(
          "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n"
          R"({"usage":0})");
    }
  }

  const base::Duration pause_;
  bool is_new_ = true;
  http::test::ScriptedServer server_;
};

TEST_F(RouterFaults, AConnectionThatWasIdleMayBeReplacedWithoutAnotherPlaceInThePool) {
  route::RouterOptions options = in_turns();
  options.pool.connections = 1;
  Fleet fleet(std::move(options));
  ClosingWorker closing(fleet.executor(), base::Duration::zero());
  fleet.add_worker(closing.url());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
  EXPECT_EQ(fleet.worker(0).incarnation, 1U);
}

TEST_F(RouterFaults, AConnectionThatEndsLongAfterItsRequestIsAFault) {
  Fleet fleet;
  ClosingWorker closing(fleet.executor(), std::chrono::milliseconds(1100));
  fleet.add_worker(closing.url());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kSuspicious);
}

TEST_F(RouterFaults, AWorkerThatSaysItIsUnhealthyIsOut) {
  Fleet fleet(2);
  fleet.engine(0).knobs().health = "no";
  fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
  const auto requests = fleet.counts(0).requests;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, requests);
  fleet.engine(0).knobs().health = "yes";
  fleet.run_until([&] { return fleet.worker(0).is_reachable; });
}

TEST_F(RouterFaults, AWorkerThatLiesAboutItsHealthIsOutByItsRequests) {
  Fleet fleet(2);
  set_fault(fleet, 0, "cut@start", 0);
  // Its /health is 200 all the time.
  while (fleet.worker(0).health.state() != HealthState::kUnhealthy) {
    EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  }
  EXPECT_TRUE(fleet.worker(0).is_reachable);
  EXPECT_EQ(fleet.worker(0).weight, 0);
  const auto requests = fleet.counts(0).requests;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, requests);
}

TEST_F(RouterFaults, AHealthCheckWithoutAnAnswerMeansLoad) {
  route::WorkerMonitor::Options monitor = quick_checks();
  monitor.timeout = std::chrono::milliseconds(100);
  Fleet fleet(in_turns(), monitor);
  fleet.add_engine();
  fleet.engine(0).knobs().health = "stall";
  // Meanwhile several checks have had no answer.
  const Client call = fleet.ask(chat(true, 100, {{"gap", "10ms"}}));
  EXPECT_EQ(call->text(), fleet.text_of(chat(true, 100)));
  EXPECT_TRUE(fleet.worker(0).is_reachable);
}

TEST_F(RouterFaults, ALoneWorkerThatFaultsStaysIn) {
  Fleet fleet(1);
  for (int i = 0; i < 4; ++i) {
    // The third attempt succeeds.
    set_fault(fleet, 0, "cut@start", 2);
    EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  }
  set_fault(fleet, 0, "cut@start", 0);
  EXPECT_EQ(fleet.ask(chat(true))->status(), 502);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kUnhealthy);
  set_fault(fleet, 0, "none", 0);
  EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
}

TEST_F(RouterFaults, AWorkerInProbationGetsOneRequestAtATime) {
  Fleet fleet;
  fleet.health_rules.cool_down = std::chrono::milliseconds(1);
  fleet.add_engines(2);
  set_fault(fleet, 0, "cut@start", 3);
  while (fleet.worker(0).health.state() == HealthState::kHealthy ||
         fleet.worker(0).health.state() == HealthState::kSuspicious) {
    EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  }
  fleet.run_until([&] { return fleet.worker(0).health.state() == HealthState::kProbation; });
  const auto requests = fleet.counts(1).requests;
  std::vector<Client> calls;
  for (int i = 0; i < 5; ++i) calls.push_back(fleet.begin(chat(true, 8, {{"fail", "stall@3"}})));
  fleet.run_until([&] { return fleet.counts(1).requests == requests + 4; });
  EXPECT_EQ(fleet.busy(0), 1U);
  for (const Client& call : calls) {
    fleet.run_until([&] { return call->events().size() >= 3; });
    call->disconnect();
  }
  fleet.run_until([&] { return fleet.busy(0) == 0 && fleet.worker(0).requests == 0; });
  // A client that goes proves nothing; five answers do.
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kProbation);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(fleet.ask(chat(true))->status(), 200);
  EXPECT_EQ(fleet.worker(0).health.state(), HealthState::kHealthy);
}

// Dynamo: rolling upgrade.
TEST_F(RouterFaults, ARollingRestartUnderLoadFailsNoRequest) {
  Fleet fleet(3);
  Load load(fleet, {.streams = 8}, chat(true, 20, {{"gap", "1ms"}}));
  for (std::size_t i = 0; i < 3; ++i) {
    load.run(16);
    fleet.worker(i).is_drained = true;
    fleet.router().on_change();
    load.run_until([&] { return fleet.busy(i) == 0; });
    fleet.kill(i);
    load.run_until([&] { return !fleet.worker(i).is_reachable; });
    fleet.start(i);
    load.run_until([&] { return fleet.worker(i).is_reachable; });
    fleet.worker(i).is_drained = false;
    fleet.router().on_change();
    load.run_until([&] { return fleet.counts(i).requests > 0; });
  }
  load.end();
}

// Dynamo: *_pod, without a word: nothing is drained.
TEST_F(RouterFaults, KillsUnderLoadFailNoAnswerInOnePiece) {
  Fleet fleet(3);
  Load load(fleet, {.whole = 8}, chat(false, 20, {{"gap", "1ms"}}));
  for (std::size_t round = 0; round < 6; ++round) {
    const std::size_t i = round % 3;
    load.run_until([&] { return fleet.busy(i) > 0; });
    fleet.kill(i);
    load.run(8);
    fleet.start(i);
    load.run_until([&] { return fleet.worker(i).is_reachable && fleet.worker(i).weight > 0; });
  }
  load.end();
}

// The router cannot know whether the engine died of the request, or had closed the connection.
TEST_F(RouterFaults, ADeathOnAConnectionThatWasUsedBeforeCountsForPoison) {
  Fleet fleet(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  const Client call = fleet.begin(chat(false, 8, {{"fail", "stall@start"}}));
  for (int deaths = 0; deaths < 2; ++deaths) {
    std::optional<std::size_t> busy;
    fleet.run_until([&] {
      for (std::size_t i = 0; i < 3; ++i) {
        if (fleet.worker(i).is_reachable && fleet.busy(i) > 0) busy = i;
      }
      return busy || call->has_ended();
    });
    ASSERT_TRUE(busy);
    fleet.kill(*busy);
    fleet.run_until([&] { return !fleet.worker(*busy).is_reachable; });
  }
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(call->status(), 422);
  EXPECT_EQ(call->error_code(), "poison_request");
}

// A body that many clients send may be in flight at deaths that have another cause.
TEST_F(RouterFaults, ABodyOfWhichOtherRequestsEndWellIsNoPoison) {
  route::RouterOptions options = in_turns();
  options.resume.enabled = false;
  Fleet fleet(3, std::move(options));
  for (std::size_t i = 0; i < 3; ++i) set_fault(fleet, i, "stall@0", 1);
  const Client call = fleet.begin(chat(false));
  const auto find_busy = [&](std::size_t from) {
    std::size_t busy = 3;
    fleet.run_until([&] {
      for (std::size_t i = from; i < 3; ++i) {
        if (fleet.busy(i) > 0) busy = i;
      }
      return busy < 3;
    });
    return busy;
  };
  ASSERT_EQ(find_busy(0), 0U);
  fleet.kill(0);
  const std::size_t second = find_busy(1);
  set_fault(fleet, 3 - second, "none", 0);
  for (unsigned i = 0; i < route::PoisonBodies::kAcquittals; ++i) {
    EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
  }
  fleet.kill(second);
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(call->status(), 200) << call->body();
  EXPECT_EQ(call->text(), fleet.text_of(chat(false)));
  EXPECT_EQ(fleet.ask(chat(false))->status(), 200);
}

}  // namespace
}  // namespace fo::test
