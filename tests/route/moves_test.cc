// Requests that leave a worker which is drained or convicted.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "route/fleet.h"
#include "route/router.h"

namespace fo::test {
namespace {

using nlohmann::json;

class Moves : public FdCounting {
 protected:
  static route::RouterOptions move_at_once() {
    route::RouterOptions options = in_turns();
    options.resume.drain = base::Duration::zero();
    return options;
  }
  static json stream(std::uint64_t tokens) {
    json body = chat(true, tokens);
    body.erase("oracle");
    return body;
  }
  // Begins streams, until each worker has half of them and each of them a token.
  static std::vector<Client> begin_streams(Fleet& fleet, std::size_t count, const json& body) {
    std::vector<Client> calls;
    for (std::size_t i = 0; i < count; ++i) calls.push_back(fleet.begin(body));
    fleet.run_until([&] {
      return std::all_of(calls.begin(), calls.end(),
                         [](const Client& call) { return !call->text().empty(); });
    });
    return calls;
  }
  static void drain(Fleet& fleet, std::size_t engine) {
    fleet.worker(engine).is_drained = true;
    fleet.router().on_change();
  }
  static void wait(Fleet& fleet, const std::vector<Client>& calls) {
    for (const Client& call : calls) fleet.run_until([&] { return call->has_ended(); });
  }
};

TEST_F(Moves, TheStreamsOfADrainedWorkerGoOnElsewhere) {
  Fleet fleet(2, move_at_once());
  const json body = stream(400);
  const std::string text = fleet.text_of(body);
  for (const std::size_t engine : {0U, 1U}) {
    fleet.engine(engine).knobs().gap = std::chrono::milliseconds(10);
  }
  const std::vector<Client> calls = begin_streams(fleet, 8, body);
  drain(fleet, 0);
  fleet.run_until([&] { return fleet.busy(0) == 0; });
  // None has ended: they have moved.
  for (const Client& call : calls) EXPECT_FALSE(call->has_ended());
  fleet.engine(1).knobs().gap = base::Duration::zero();
  wait(fleet, calls);
  std::size_t moved = 0;
  for (const Client& call : calls) {
    EXPECT_EQ(call->text(), text);
    EXPECT_EQ(call->events().back(), "[DONE]");
    moved += call->body().find(": fo-route: resumed 1\n") != std::string::npos ? 1U : 0U;
  }
  EXPECT_EQ(moved, 4U);
  // Each was computed on the new worker first, apart from the requests that continued there.
  EXPECT_EQ(fleet.counts(1).requests, 4U + 2 * 4U);
  EXPECT_EQ(fleet.worker(0).health.state(), fleet::HealthState::kHealthy);
}

TEST_F(Moves, AreCountedByTheGroupsOfTheWorkers) {
  route::RouterOptions options = move_at_once();
  options.metrics_groups = true;
  Fleet fleet(std::move(options));
  for (const char* group : {"a", "b"}) {
    fleet.add_engine({}, [&](route::Worker& worker) { worker.group = group; });
  }
  fleet.engine(0).knobs().gap = std::chrono::milliseconds(10);
  fleet.engine(1).knobs().gap = std::chrono::milliseconds(10);
  const std::vector<Client> calls = begin_streams(fleet, 2, stream(400));
  drain(fleet, 0);
  wait(fleet, calls);
  const std::string page = fleet.router().metrics_text();
  EXPECT_NE(page.find("dynamo_migration_total{source_group=\"a\",target_group=\"b\","
                      "method=\"reprefill\"} 1\n"),
            std::string::npos)
      << page;
  EXPECT_NE(page.find("fo_route_resumes_total{outcome=\"resumed\",reason=\"drained\"} 1\n"),
            std::string::npos)
      << page;
}

TEST_F(Moves, StreamsThatMoveTogetherGoToDifferentWorkers) {
  Fleet fleet(1, move_at_once());
  const json body = stream(400);
  fleet.engine(0).knobs().gap = std::chrono::milliseconds(10);
  const std::vector<Client> calls = begin_streams(fleet, 8, body);
  fleet.add_engines(4);
  drain(fleet, 0);
  wait(fleet, calls);
  for (const Client& call : calls) EXPECT_EQ(call->events().back(), "[DONE]");
  for (const std::size_t engine : {1U, 2U, 3U, 4U}) {
    EXPECT_EQ(fleet.counts(engine).requests, 2U + 2U) << engine;
    EXPECT_EQ(fleet.worker(engine).incoming_requests, 0U);
    EXPECT_EQ(fleet.worker(engine).incoming_tokens, 0U);
  }
}

/// A stream on an engine that is to be drained, while another one fails at first.
class MovesAfterAFailure : public Moves {
 protected:
  MovesAfterAFailure() {
    fleet_.add_engines(1);
    const json body = stream(2000);
    text_ = fleet_.text_of(body);
    fleet_.engine(0).knobs().gap = std::chrono::milliseconds(20);
    calls_ = begin_streams(fleet_, 1, body);
  }
  /// Adds engines, of which the first one refuses `refusals` requests, and drains the stream's.
  void move(std::size_t engines, std::uint64_t refusals) {
    fleet_.add_engines(engines);
    fleet_.engine(1).knobs().refuse_next = refusals;
    drain(fleet_, 0);
    wait(fleet_, calls_);
    EXPECT_EQ(calls_[0]->text(), text_);
    EXPECT_EQ(fleet_.counts(0).length, 0U);
  }

  Fleet fleet_{move_at_once()};

 private:
  std::string text_;
  std::vector<Client> calls_;
};

TEST_F(MovesAfterAFailure, AStreamMovesToAnotherWorker) {
  move(2, 1000);
  EXPECT_EQ(fleet_.counts(1).refused, 1U);
  EXPECT_EQ(fleet_.counts(2).length, 2U) << "the warming, and the rest";
}

TEST_F(MovesAfterAFailure, TheOnlyOtherWorkerIsAskedAgain) {
  move(1, 2);
  EXPECT_EQ(fleet_.counts(1).refused, 2U);
}

TEST_F(Moves, AResumedStreamMovesOnceItsNewWorkerHasBroughtAToken) {
  Fleet fleet(2, move_at_once());
  const json body = stream(400);
  const std::string text = fleet.text_of(body);
  for (const std::size_t engine : {0U, 1U}) {
    fleet.engine(engine).knobs().gap = std::chrono::milliseconds(10);
  }
  const std::vector<Client> calls = begin_streams(fleet, 2, body);
  fleet.engine(1).knobs().first_token = std::chrono::hours(1);
  fleet.kill(0);
  fleet.run_until([&] { return fleet.busy(1) == 2; });
  fleet.add_engines(1);
  drain(fleet, 1);
  // The stream that has its tokens from this worker moves.
  fleet.run_until([&] { return fleet.busy(1) == 1; });
  fleet.run_until([&] { return calls[0]->has_ended() || calls[1]->has_ended(); });
  EXPECT_EQ(fleet.counts(2).requests, 2U) << "the warming, and the rest";
  EXPECT_EQ(fleet.worker(2).incoming_requests, 0U);
  for (const Client& call : calls) {
    if (call->has_ended()) {
      EXPECT_EQ(call->text(), text);
    } else {
      call->disconnect();
    }
  }
  wait(fleet, calls);
}

TEST_F(Moves, AStreamThatHasMovedMovesAgain) {
  Fleet fleet(1, move_at_once());
  const json body = stream(400);
  const std::string text = fleet.text_of(body);
  fleet.engine(0).knobs().gap = std::chrono::milliseconds(10);
  const std::vector<Client> calls = begin_streams(fleet, 1, body);
  for (const std::size_t engine : {0U, 1U}) {
    fleet.add_engines(1);
    fleet.engine(engine + 1).knobs().gap = std::chrono::milliseconds(10);
    drain(fleet, engine);
    fleet.run_until([&] { return fleet.busy(engine) == 0; });
  }
  wait(fleet, calls);
  EXPECT_EQ(calls[0]->text(), text);
  EXPECT_NE(calls[0]->body().find(": fo-route: resumed 2\n"), std::string::npos);
  EXPECT_EQ(fleet.counts(1).length, 1U) << "the warming; the stream itself did not end here";
}

TEST_F(Moves, AStreamThatCannotContinueEndsWhereItIs) {
  Fleet fleet(2, move_at_once());
  json body = stream(60);
  body["presence_penalty"] = 1;
  for (const std::size_t engine : {0U, 1U}) {
    fleet.engine(engine).knobs().gap = std::chrono::milliseconds(10);
  }
  const std::vector<Client> calls = begin_streams(fleet, 2, body);
  drain(fleet, 0);
  wait(fleet, calls);
  EXPECT_EQ(calls[0]->text(), calls[1]->text());
  EXPECT_EQ(fleet.counts(0).length, 1U);
  EXPECT_EQ(calls[0]->events().back(), "[DONE]");
}

TEST_F(Moves, WithoutAnotherWorkerStreamsStay) {
  Fleet fleet(1, move_at_once());
  const json body = stream(60);
  fleet.engine(0).knobs().gap = std::chrono::milliseconds(20);
  const std::vector<Client> calls = begin_streams(fleet, 2, body);
  drain(fleet, 0);
  wait(fleet, calls);
  for (const Client& call : calls) EXPECT_EQ(call->events().back(), "[DONE]");
}

// As an engine does that ends its streams for a switchover, which is then undone.
TEST_F(Moves, AStreamThatADrainHasCutGoesOnWhereTheDrainIsUndone) {
  Fleet fleet(1, move_at_once());
  const json body = stream(40);
  const std::string text = fleet.text_of(body);
  oracle::Knobs& knobs = fleet.engine(0).knobs();
  knobs.gap = std::chrono::milliseconds(1);
  knobs.fail = oracle::parse_fault("cut@20");
  knobs.fail_next = 1;
  const std::vector<Client> calls = begin_streams(fleet, 1, body);
  drain(fleet, 0);
  fleet.run_until([&] { return fleet.worker(0).requests == 0; });
  EXPECT_FALSE(calls.front()->has_ended());
  fleet.worker(0).is_drained = false;
  fleet.router().on_change();
  wait(fleet, calls);
  EXPECT_EQ(calls.front()->text(), text);
  EXPECT_EQ(calls.front()->events().back(), "[DONE]");
}

TEST_F(Moves, WhatAConvictedWorkerDeliveredIsNotContinued) {
  Fleet fleet(2);
  const json body = stream(400);
  for (const std::size_t engine : {0U, 1U}) {
    fleet.engine(engine).knobs().gap = std::chrono::milliseconds(10);
  }
  const std::vector<Client> calls = begin_streams(fleet, 2, body);
  json whole = body;
  whole["stream"] = false;
  const Client undelivered = fleet.begin(whole);
  fleet.run_until([&] { return fleet.counts(0).requests + fleet.counts(1).requests == 3; });
  const std::size_t wrong = fleet.busy(0) == 2 ? 0 : 1;
  fleet.worker(wrong).verdict.health = fleet::HealthState::kConvicted;
  fleet.worker(wrong).verdict.weight = 0;
  fleet.router().on_change();
  fleet.run_until([&] { return fleet.busy(wrong) == 0; });
  fleet.engine(1 - wrong).knobs().gap = base::Duration::zero();
  wait(fleet, calls);
  fleet.run_until([&] { return undelivered->has_ended(); });
  const Client& ended = calls[wrong];
  EXPECT_EQ(ended->error_code(), "worker_lost");
  EXPECT_NE(ended->error_message().find("wrong"), std::string::npos) << ended->error_message();
  EXPECT_EQ(calls[1 - wrong]->events().back(), "[DONE]");
  EXPECT_EQ(undelivered->status(), 200);
  EXPECT_EQ(undelivered->text(), calls[1 - wrong]->text());
}

}  // namespace
}  // namespace fo::test
