// Streams whose worker fails in the middle, and that go on.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "route/fleet.h"
#include "route/router.h"

namespace fo::test {
namespace {

using nlohmann::json;

json resumable_chat(std::uint64_t tokens = 24) {
  json body = test::chat(true, tokens);
  body.erase("oracle");
  return body;
}

json streamed_completion(std::uint64_t tokens = 24) {
  return {{"model", "oracle"},
          {"prompt", "Once upon"},
          {"max_tokens", tokens},
          {"ignore_eos", true},
          {"stream", true}};
}

// One that also names its tokens.
json completion_that_ends() {
  json body = streamed_completion(12);
  body.erase("ignore_eos");
  body["return_token_ids"] = true;
  return body;
}

void fail_next(Fleet& fleet, std::size_t engine, const std::string& fault,
               std::uint64_t times = 1) {
  oracle::Knobs& knobs = fleet.engine(engine).knobs();
  knobs.fail = oracle::parse_fault(fault);
  knobs.fail_next = times;
  knobs.gap = std::chrono::milliseconds(1);
}

std::string path_of(const json& body) {
  return body.contains("prompt") ? "/v1/completions" : "/v1/chat/completions";
}

class EachMidStreamFault : public FdCounting, public testing::WithParamInterface<const char*> {};

TEST_P(EachMidStreamFault, TheStreamGoesOnTokenForToken) {
  Fleet fleet(2);
  for (const json& body : {resumable_chat(), streamed_completion()}) {
    const Client undisturbed = fleet.ask(body, path_of(body));
    fail_next(fleet, 0, GetParam());
    const auto faults = fleet.counts(0).faults;
    Client call;
    while (fleet.counts(0).faults == faults) {
      call = fleet.ask(body, path_of(body));
      EXPECT_EQ(call->status(), 200);
      EXPECT_TRUE(call->is_whole());
      EXPECT_EQ(call->text(), undisturbed->text());
      EXPECT_EQ(call->events().back(), "[DONE]");
    }
    EXPECT_NE(call->body().find(": fo-route: resumed 1\n"), std::string::npos) << call->body();
  }
}

TEST(MidStreamFault, AnErrorFrameIsAFaultIfAnotherWorkerContinuesTheStream) {
  Fleet fleet(2);
  fail_next(fleet, 0, "error@8");
  while (fleet.counts(0).faults == 0) EXPECT_TRUE(fleet.ask(resumable_chat())->is_whole());
  EXPECT_EQ(fleet.worker(0).health.state(), fleet::HealthState::kSuspicious);
  EXPECT_EQ(fleet.worker(1).health.state(), fleet::HealthState::kHealthy);
}

TEST(MidStreamFault, AnAnswerInOnePieceThatIsTooLongToBeReadAsAStreamIsNoFault) {
  route::RouterOptions options = in_turns();
  options.exchange.whole = 2000;
  Fleet fleet(1, std::move(options));
  json body = resumable_chat(1000);
  const std::string text = fleet.text_of(body);
  body["stream"] = false;
  const auto before = fleet.counts(0).requests;
  EXPECT_EQ(fleet.ask(body)->text(), text);
  EXPECT_EQ(fleet.counts(0).requests, before + 2) << "the second one is as the client gave it";
  EXPECT_EQ(fleet.worker(0).health.state(), fleet::HealthState::kHealthy);
  // The limit is that of the answer, and not of its events.
  body["max_tokens"] = 100;
  fleet.ask(body);
  EXPECT_EQ(fleet.counts(0).requests, before + 3);
}

INSTANTIATE_TEST_SUITE_P(, EachMidStreamFault,
                         testing::Values("reset@8", "cut@8", "half@8", "end@8", "error@8",
                                         "abort@8", "reset@1", "cut@23"),
                         [](const auto& fault) {
                           std::string name = fault.param;
                           std::erase(name, '@');
                           return name;
                         });

class RouterResume : public FdCounting {};

// The limit of such an answer is the model's context, which the worker names.
TEST_F(RouterResume, AChatWithoutALimitGoesOnToTheEndOfTheContext) {
  oracle::EngineOptions options;
  options.model.max_model_len = 64;
  Fleet fleet;
  fleet.add_engines(2, options);
  json body = resumable_chat();
  body.erase("max_tokens");
  body["stream_options"] = {{"include_usage", true}};
  const Client undisturbed = fleet.ask(body);
  fail_next(fleet, 0, "reset@8");
  Client call;
  while (fleet.counts(0).faults == 0) call = fleet.ask(body);
  EXPECT_EQ(call->text(), undisturbed->text());
  const auto usage_of = [](const Client& client) {
    const std::vector<std::string> events = client->events();
    return json::parse(events.at(events.size() - 2))["usage"];
  };
  EXPECT_EQ(usage_of(call)["total_tokens"], 64);
  EXPECT_EQ(usage_of(call)["completion_tokens"], usage_of(undisturbed)["completion_tokens"]);
}

// The card says more: here, which token ends the answer.
TEST_F(RouterResume, TheCardOfTheWorkerCounts) {
  Fleet fleet;
  const json body = completion_that_ends();
  fleet.add_engine();
  const Client undisturbed = fleet.ask(body, path_of(body));
  const json last = json::parse(undisturbed->events().at(undisturbed->events().size() - 2));
  const json& ids = last["choices"][0]["token_ids"];
  ASSERT_FALSE(ids.empty());
  const auto card = std::make_shared<fleet::Card>();
  card->name = "oracle";
  card->context_length = 32768;
  card->stop_ids = {ids.back().get<std::uint64_t>()};
  fleet.worker(0).facts = card;
  // The worker is lost after that token, and no other one is needed.
  fail_next(fleet, 0, "cut@" + std::to_string(body["max_tokens"].get<int>()));
  const Client call = fleet.ask(body, path_of(body));
  EXPECT_EQ(fleet.counts(0).faults, 1U);
  EXPECT_EQ(call->text(), undisturbed->text());
  EXPECT_EQ(call->events().back(), "[DONE]");
  const json finish = json::parse(call->events().at(call->events().size() - 2));
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "stop");
}

TEST_F(RouterResume, WithoutResumesAStartedAnswerEndsAndNoOtherWorkerIsAsked) {
  route::RouterOptions options = in_turns();
  options.resume.enabled = false;
  Fleet fleet(2, std::move(options));
  fail_next(fleet, 0, "cut@8");
  Client call;
  std::uint64_t asked = 0;
  while (fleet.counts(0).faults == 0) {
    asked = fleet.counts(1).requests;
    call = fleet.ask(resumable_chat());
  }
  EXPECT_EQ(call->status(), 200);
  EXPECT_TRUE(call->is_whole());
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_TRUE(call->error_message().ends_with("this router resumes no answers"))
      << call->error_message();
  EXPECT_FALSE(call->text().empty());
  EXPECT_EQ(fleet.counts(1).requests, asked);
}

}  // namespace
}  // namespace fo::test
