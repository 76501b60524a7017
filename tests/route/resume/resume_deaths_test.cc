// Answers whose workers end, one after the other or for good, and clients that leave meanwhile.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "route/fleet.h"
#include "route/resume/disturbed.h"

namespace fo::test {
namespace {

using nlohmann::json;

class ResumeDeaths : public FdCounting {
 protected:
  static std::string resumed(int count) {
    return ": fo-route: resumed " + std::to_string(count) + "\n";
  }
  static void expect_resumed(const Client& call, int count) {
    for (int i = 1; i <= count; ++i) {
      EXPECT_NE(call->body().find(resumed(i)), std::string::npos) << i;
    }
    EXPECT_EQ(call->body().find(resumed(count + 1)), std::string::npos);
  }
  /// A stream of the first engine, of which it has sent some tokens and no more.
  static Client begin_stalled(DisturbedFleet& fleet, const json& body) {
    fleet.fail_next(0, "stall@8");
    Client call;
    while (fleet.counts(0).faults == 0) {
      call = fleet.begin_at_router(body);
      fleet.run_until([&] { return call->has_ended() || fleet.counts(0).faults == 1; });
    }
    fleet.run_until([&] { return call->events().size() >= 4; });
    return call;
  }
};

TEST_F(ResumeDeaths, AnAnswerIsResumedByARouterThatRetriesNoRequest) {
  route::RouterOptions options = in_turns();
  options.dispatch.budget.max_retries_per_request = 0;
  DisturbedFleet fleet(2, std::move(options));
  expect_resumed(fleet.ask_with_fault(long_answer(true), "reset@6"), 1);
}

TEST_F(ResumeDeaths, AnAnswerSurvivesSeveralDeaths) {
  for (const bool is_streamed : {true, false}) {
    for (const bool is_chat : {true, false}) {
      for (const std::size_t deaths : {1U, 2U, 3U}) {
        DisturbedFleet fleet(deaths + 1);
        json body = long_answer(is_chat, {{"stream_options", {{"include_usage", true}}}});
        if (!is_streamed) body = in_one_piece(body);
        const json undisturbed = summary_of(fleet.ask_directly(deaths, body));
        for (std::size_t i = 0; i <= deaths; ++i) {
          oracle::Knobs& knobs = fleet.engine(i).knobs();
          knobs.fail = oracle::parse_fault(i < deaths ? "exit@6" : "none");
        }
        // The last engine stays: its turn may come before that of the others.
        std::size_t dead = 0;
        while (dead < deaths) {
          const std::string before = fleet.resumes("resumed");
          const Client call = fleet.send_to_router(body);
          ASSERT_EQ(summary_of(call), undisturbed) << deaths;
          const int resumes = std::stoi(fleet.resumes("resumed")) - std::stoi(before);
          if (is_streamed) expect_resumed(call, resumes);
          dead += static_cast<std::size_t>(resumes);
        }
        EXPECT_EQ(dead, deaths);
      }
    }
  }
}

TEST_F(ResumeDeaths, AfterMoreFaultsThanWorkersTheAnswerGoesOnWhereItHasFailedBefore) {
  for (const std::size_t engines : {1U, 2U}) {
    DisturbedFleet fleet(engines);
    const json body = long_answer(true);
    const json undisturbed = summary_of(fleet.ask_directly(0, body));
    for (std::size_t i = 0; i < engines; ++i) {
      fleet.fail_next(i, "reset@4");
      fleet.engine(i).knobs().fail_next = 2;
    }
    const Client call = fleet.send_to_router(body);
    EXPECT_EQ(summary_of(call), undisturbed);
    expect_resumed(call, 2 * static_cast<int>(engines));
  }
}

// The second token of a character has to be generated with the first one, which no engine does.
TEST_F(ResumeDeaths, TokensThatAreGeneratedAgainAreNoProgress) {
  DisturbedFleet fleet(2);
  for (const std::size_t engine : {0U, 1U}) {
    fleet.fail_next(engine, "abort@1");
    fleet.engine(engine).knobs().fail_next = 1000;
  }
  const Client call = fleet.send_to_router(long_answer(true));
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_NE(call->error_message().find("too many workers have failed"), std::string::npos);
}

TEST_F(ResumeDeaths, AWorkerThatBroughtNoTokenIsNotAskedAgain) {
  route::RouterOptions options = in_turns();
  options.times.stream = std::chrono::milliseconds(300);
  options.resume.wait = std::chrono::milliseconds(100);
  DisturbedFleet fleet(1, std::move(options));
  const Client call = begin_stalled(fleet, long_answer(true));
  const std::uint64_t requests = fleet.counts(0).requests;
  fleet.fail_next(0, "reset@0");
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_EQ(fleet.counts(0).requests, requests + 1);
}

// Before the new worker brings a token, it fails.
TEST_F(ResumeDeaths, AFaultInTheReplaysPrefillIsSurvived) {
  for (const char* fault : {"cut@start", "reset@0", "error@start", "half@0"}) {
    DisturbedFleet fleet(3);
    const json body = long_answer(true);
    const json undisturbed = summary_of(fleet.ask_directly(2, body));
    // The worker after the first one in turn.
    fleet.fail_next(1, fault);
    Client call = fleet.ask_with_fault(body, "cut@8");
    EXPECT_EQ(summary_of(call), undisturbed) << fault;
    expect_resumed(call, 1);
    EXPECT_EQ(fleet.counts(1).faults, 1U) << fault;
    EXPECT_EQ(fleet.resumes("resumed"), "1");
  }
}

// An engine that dies of the same request again is one death too many.
TEST_F(ResumeDeaths, ADeathInTheReplaysPrefillIsPoison) {
  DisturbedFleet fleet(3);
  const json body = long_answer(true);
  const std::string text = fleet.ask_directly(2, body)->text();
  fleet.fail_next(1, "exit@0");
  const Client call = fleet.ask_with_fault(body, "exit@8");
  EXPECT_EQ(call->error_code(), "poison_request") << call->body();
  EXPECT_TRUE(text.starts_with(call->text()));
  EXPECT_FALSE(call->text().empty());
  EXPECT_EQ(summary_of(call)["ends"], 0);
  EXPECT_EQ(fleet.send_to_router(body)->status(), 422) << "for 10 minutes";
}

TEST_F(ResumeDeaths, ADeathBetweenTheLastTokenAndItsFinishNeedsNoWorker) {
  for (const bool is_chat : {true, false}) {
    DisturbedFleet fleet(2);
    const json body = long_answer(is_chat, {{"stream_options", {{"include_usage", true}}}});
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    fleet.fail_next(0, "exit@24");
    Client call = fleet.send_to_router(body);
    if (fleet.resumes("finished") == "0") call = fleet.send_to_router(body);
    EXPECT_EQ(fleet.resumes("finished"), "1");
    EXPECT_EQ(fleet.resumes("resumed"), "0");
    EXPECT_EQ(summary_of(call), undisturbed);
  }
}

TEST_F(ResumeDeaths, AStalledStreamGoesOnElsewhere) {
  route::RouterOptions options = in_turns();
  options.times.stream = std::chrono::milliseconds(300);
  DisturbedFleet fleet(2, std::move(options));
  for (const bool is_streamed : {true, false}) {
    const json body = is_streamed ? long_answer(true) : in_one_piece(long_answer(true));
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    EXPECT_EQ(summary_of(fleet.ask_with_fault(body, "stall@8")), undisturbed);
    // The old call is closed, so that its engine does not compute in vain.
    fleet.run_until([&] { return fleet.busy(0) == 0; });
  }
  EXPECT_EQ(fleet.resumes("resumed", "stalled"), "2");
}

TEST_F(ResumeDeaths, AreCountedByTheReasonOfTheLoss) {
  struct Loss {
    const char* fault;
    const char* reason;
    /// Of the first worker that continues it, which is not the reason.
    const char* next_fault;
  };
  for (const Loss& loss :
       {Loss{"exit@8", "broken", "error@start"}, Loss{"cut@8", "broken", "error@start"},
        Loss{"error@8", "error", "cut@start"}, Loss{"abort@8", "error", "cut@start"}}) {
    DisturbedFleet fleet(3);
    fleet.fail_next(1, loss.next_fault);
    expect_resumed(fleet.ask_with_fault(long_answer(true), loss.fault), 1);
    EXPECT_EQ(fleet.counts(1).faults, 1U) << loss.fault;
    EXPECT_EQ(fleet.resumes("resumed"), "1") << loss.fault;
    EXPECT_EQ(fleet.resumes("resumed", loss.reason), "1") << loss.fault;
  }
}

TEST_F(ResumeDeaths, AClientThatLeavesEndsTheContinuation) {
  DisturbedFleet fleet(2);
  const Client call = begin_stalled(fleet, long_answer(true));
  fleet.engine(1).knobs().fail = oracle::parse_fault("stall@2");
  fleet.kill(0);
  fleet.run_until([&] { return call->body().find(resumed(1)) != std::string::npos; });
  EXPECT_EQ(fleet.busy(1), 1U);
  call->disconnect();
  fleet.run_until([&] { return fleet.busy(1) == 0 && fleet.requests().empty(); });
  EXPECT_EQ(fleet.counts(1).aborted, 1U);
}

TEST_F(ResumeDeaths, AClientThatLeavesWhileItsAnswerWaitsIsForgotten) {
  DisturbedFleet fleet(1);
  const Client call = begin_stalled(fleet, long_answer(true));
  fleet.kill(0);
  fleet.run_until([&] { return !fleet.worker(0).is_reachable; });
  EXPECT_EQ(fleet.requests().size(), 1U);
  call->disconnect();
  fleet.run_until([&] { return fleet.requests().empty(); });
  fleet.start(0);
  fleet.run_until([&] { return fleet.worker(0).is_reachable; });
  EXPECT_EQ(fleet.send_to_router(long_answer(true))->status(), 200);
  EXPECT_EQ(fleet.counts(0).requests, 1U);
}

// As a standby does that binds the same address.
TEST_F(ResumeDeaths, AWorkerThatComesBackAtTheSameAddressGoesOn) {
  DisturbedFleet fleet(1);
  const json body = long_answer(true, {{"stream_options", {{"include_usage", true}}}});
  const json undisturbed = summary_of(fleet.ask_directly(0, body));
  const Client call = begin_stalled(fleet, body);
  fleet.kill(0);
  // Meanwhile, the client is kept from giving up.
  const std::string comment = ": fo-route: waiting for a worker\n";
  fleet.run_until([&] { return call->body().find(comment) != std::string::npos; });
  fleet.start(0);
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(summary_of(call), undisturbed);
  expect_resumed(call, 1);
}

// A standby may have the address before the answer of the engine before it has failed.
TEST_F(ResumeDeaths, AWorkerThatCameBackDuringTheAnswerGoesOn) {
  route::RouterOptions options = in_turns();
  options.times.stream = options.times.first_token = std::chrono::milliseconds(500);
  DisturbedFleet fleet(1, std::move(options));
  const json body = long_answer(true);
  const json undisturbed = summary_of(fleet.ask_directly(0, body));
  const Client call = begin_stalled(fleet, body);
  // The first attempt to continue brings nothing.
  fleet.fail_next(0, "stall@0");
  fleet.run_until([&] { return fleet.counts(0).faults == 2; });
  const std::uint64_t before = fleet.worker(0).incarnation;
  const auto worker = fleet.router().workers().find("w0");
  fleet.monitor().on_refused(worker, "it refuses connections");
  fleet.run_until([&] { return worker->incarnation > before; });
  EXPECT_FALSE(call->has_ended());
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(summary_of(call), undisturbed);
  expect_resumed(call, 1);
}

TEST_F(ResumeDeaths, WithoutAnotherWorkerInTimeTheStreamEndsWithAnError) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::milliseconds(100);
  DisturbedFleet fleet(1, std::move(options));
  const Client call = begin_stalled(fleet, long_answer(true));
  fleet.kill(0);
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_TRUE(call->is_whole());
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_NE(call->error_message().find("no other worker can continue"), std::string::npos);
  EXPECT_EQ(fleet.resumes("no_worker"), "1");
}

TEST_F(ResumeDeaths, WithoutAnotherWorkerInTimeAnAnswerInOnePieceIsAnError) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::milliseconds(100);
  DisturbedFleet fleet(1, std::move(options));
  fleet.fail_next(0, "exit@8");
  const Client call = fleet.send_to_router(in_one_piece(long_answer(true)));
  EXPECT_EQ(call->status(), 502);
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_EQ(call->json()["error"]["delivered_tokens"], 0) << call->body();
  EXPECT_EQ(call->header("connection"), "close");
  EXPECT_EQ(fleet.resumes("no_worker"), "1");
}

TEST_F(ResumeDeaths, AnAnswerInOnePieceThatNoWorkerCanContinueIsRequestedAgainAtOnce) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::hours(1);
  DisturbedFleet fleet(2, std::move(options));
  fleet.engine(1).knobs().token_ids = "ignored";
  fleet.worker(1).lacks_token_ids = true;
  const json body = in_one_piece(long_answer(true));
  const json undisturbed = summary_of(fleet.ask_directly(1, body));
  EXPECT_EQ(summary_of(fleet.ask_with_fault(body, "exit@6")), undisturbed);
}

TEST_F(ResumeDeaths, AnAnswerInOnePieceThatNoWorkerContinuesInTimeIsRequestedAgain) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::milliseconds(500);
  DisturbedFleet fleet(2, std::move(options));
  const json body = in_one_piece(long_answer(true));
  const json undisturbed = summary_of(fleet.ask_directly(1, body));
  fleet.worker(1).lacks_token_ids = true;
  fleet.fail_next(0, "stall@6");
  Client call;
  while (!call || call->has_ended()) {
    call = fleet.begin_at_router(body);
    fleet.run_until([&] { return call->has_ended() || fleet.counts(0).faults > 0; });
  }
  fleet.worker(1).is_drained = true;
  fleet.router().on_change();
  fleet.kill(0);
  fleet.run_until([&] { return fleet.requests()[0]["worker"].is_null(); });
  fleet.worker(1).is_drained = false;
  fleet.router().on_change();
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(summary_of(call), undisturbed);
}

TEST_F(ResumeDeaths, ADeadlineThatPassesBeforeAnAnswerContinuesIsATimeout) {
  for (const bool is_streamed : {true, false}) {
    DisturbedFleet fleet(1);
    fleet.fail_next(0, "exit@8");
    const json body = is_streamed ? long_answer(true) : in_one_piece(long_answer(true));
    const Client call = fleet.ask(body, path_of_answer(body), {{"x-request-timeout", "1"}});
    EXPECT_EQ(call->error_code(), "timeout");
    EXPECT_EQ(call->status(), is_streamed ? 200 : 504);
  }
}

TEST_F(ResumeDeaths, AShortAnswerInOnePieceIsRequestedAgain) {
  for (const int limit : {15, 16}) {
    DisturbedFleet fleet(2);
    const json body = in_one_piece(long_answer(true, {{"max_tokens", limit}}));
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    EXPECT_EQ(summary_of(fleet.ask_with_fault(body, "cut@6")), undisturbed);
    EXPECT_EQ(fleet.resumes("resumed"), limit < 16 ? "0" : "1");
  }
}

// It has another model card, so that its tokens may be others.
TEST_F(ResumeDeaths, AWorkerOfAnotherCardDoesNotContinue) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::milliseconds(100);
  DisturbedFleet fleet(1, std::move(options));
  fleet.add_engine({}, [](route::Worker& worker) { worker.card = "sha256:other"; });
  const Client call = begin_stalled(fleet, long_answer(true));
  const auto requests = fleet.counts(1).requests;
  fleet.kill(0);
  fleet.run_until([&] { return call->has_ended(); });
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_EQ(fleet.counts(1).requests, requests);
}

// --- Workers that do not name their tokens

TEST_F(ResumeDeaths, AnAnswerOfAPlainWorkerDoesNotContinue) {
  DisturbedFleet fleet(2);
  for (const std::size_t engine : {0U, 1U}) fleet.engine(engine).knobs().token_ids = "ignored";
  for (const char* reason : {"does not report token ids", "token ids were not requested"}) {
    const Client call = fleet.ask_with_fault(long_answer(true), "cut@8");
    EXPECT_EQ(call->error_code(), "worker_lost");
    EXPECT_NE(call->error_message().find(reason), std::string::npos) << call->error_message();
    EXPECT_TRUE(fleet.worker(0).lacks_token_ids);
  }
}

TEST_F(ResumeDeaths, APlainWorkerIsNotAskedToContinue) {
  DisturbedFleet fleet(3);
  const json body = long_answer(true);
  const json undisturbed = summary_of(fleet.ask_directly(2, body));
  for (const char* how : {"ignored", "refused"}) {
    fleet.engine(1).knobs().token_ids = how;
    fleet.worker(1).lacks_token_ids = false;
    // Whether or not the router knows it.
    for (int i = 0; i < 2; ++i) {
      const Client call = fleet.ask_with_fault(body, "cut@8");
      EXPECT_EQ(summary_of(call), undisturbed) << how;
      expect_resumed(call, 1);
    }
  }
}

TEST_F(ResumeDeaths, AWorkerThatRefusesTheAddedFieldsIsAskedWithoutThem) {
  DisturbedFleet fleet(1);
  fleet.engine(0).knobs().token_ids = "refused";
  std::uint64_t requests = 2;
  for (const json& body : {long_answer(true), in_one_piece(long_answer(false))}) {
    const json undisturbed = summary_of(fleet.ask_directly(0, body));
    EXPECT_EQ(summary_of(fleet.send_to_router(body)), undisturbed);
    EXPECT_TRUE(fleet.worker(0).lacks_token_ids);
    // The first time, it was asked twice.
    EXPECT_EQ(fleet.counts(0).requests, ++requests);
    ++requests;
  }
  EXPECT_EQ(fleet.worker(0).health.state(), fleet::HealthState::kHealthy);
}

// --- Honest ends

// Those whose ids the client has got.
TEST_F(ResumeDeaths, TheNumberOfDeliveredTokensIsExact) {
  route::RouterOptions options = in_turns();
  options.resume.wait = std::chrono::milliseconds(1);
  for (const bool wants_ids : {true, false}) {
    for (const bool is_chat : {true, false}) {
      const json body = long_answer(is_chat, {{"return_token_ids", wants_ids}});
      for (int place = 1; place < 24; ++place) {
        DisturbedFleet fleet(1, options);
        // Up to the last one that brought text, since what follows is held.
        json with_ids = body;
        with_ids["return_token_ids"] = true;
        std::uint64_t tokens = 0;
        std::uint64_t expected = 0;
        for (const std::string& data : fleet.ask_directly(0, with_ids)->events()) {
          if (data == "[DONE]" || tokens >= static_cast<std::uint64_t>(place)) break;
          const json choice = json::parse(data)["choices"].at(0);
          tokens += choice.value("token_ids", json::array()).size();
          const std::string text =
              is_chat ? choice["delta"].value("content", "") : choice.value("text", "");
          if (!text.empty()) expected = tokens;
        }
        fleet.fail_next(0, "exit@" + std::to_string(place));
        const json summary = summary_of(fleet.send_to_router(body));
        EXPECT_EQ(summary["error"]["code"], "worker_lost");
        EXPECT_EQ(summary["error"]["delivered_tokens"], expected) << place;
        if (wants_ids) {
          EXPECT_EQ(summary["choices"]["0"]["token_ids"].size(), expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fo::test
