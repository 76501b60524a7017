// Each feature of a request whose answer continues when its worker fails: the client gets what an
// engine that does not fail would have sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "fleet/card/card.h"
#include "route/fleet.h"
#include "route/resume/disturbed.h"

namespace fo::test {
namespace {

using nlohmann::json;

struct ResumedFeature {
  const char* name;
  enum Kind { kText = 1, kChat = 2, kBoth = 3 } kind;
  const char* members;
};
using enum ResumedFeature::Kind;

void PrintTo(const ResumedFeature& feature, std::ostream* out) { *out << feature.members; }

// In front of, within and after the answer of 24 tokens.
constexpr std::array kPlaces{1, 2, 3, 5, 8, 13, 21, 23, 24};

class EachResumedFeature : public FdCounting, public testing::WithParamInterface<ResumedFeature> {
 protected:
  static route::RouterOptions options() {
    route::RouterOptions options = in_turns();
    options.rules.resume.penalties = true;
    return options;
  }
  static oracle::EngineOptions engine() {
    oracle::EngineOptions engine;
    engine.model.adapters = {"french"};
    return engine;
  }
  static std::vector<json> bodies() {
    const json more = json::parse(GetParam().members);
    std::vector<json> bodies;
    if ((GetParam().kind & kText) != 0) bodies.push_back(long_answer(false, more));
    if ((GetParam().kind & kChat) != 0) bodies.push_back(long_answer(true, more));
    return bodies;
  }
};

TEST_P(EachResumedFeature, AStreamIsAsIfNothingHadHappened) {
  DisturbedFleet fleet(options());
  fleet.add_engines(2, engine());
  for (const json& body : bodies()) {
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    for (const int place : kPlaces) {
      const Client call = fleet.ask_with_fault(body, "cut@" + std::to_string(place));
      EXPECT_EQ(summary_of(call), undisturbed) << place;
    }
  }
  EXPECT_EQ(fleet.resumes("refused"), "0");
  EXPECT_NE(fleet.resumes("resumed"), "0");
}

TEST_P(EachResumedFeature, AnAnswerInOnePieceIsAsIfNothingHadHappened) {
  DisturbedFleet fleet(options());
  fleet.add_engines(2, engine());
  for (const json& streamed : bodies()) {
    const json body = in_one_piece(streamed);
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    for (const int place : kPlaces) {
      const Client call = fleet.ask_with_fault(body, "cut@" + std::to_string(place));
      EXPECT_EQ(summary_of(call), undisturbed) << place;
    }
  }
  EXPECT_NE(fleet.resumes("resumed"), "0") << "it is continued";
}

INSTANTIATE_TEST_SUITE_P(
    , EachResumedFeature,
    testing::Values(
        ResumedFeature{"Greedy", kBoth, "{}"},
        ResumedFeature{"Sampled", kBoth, R"({"temperature":1})"},
        ResumedFeature{"TopP", kBoth, R"({"temperature":1,"top_p":0.5})"},
        ResumedFeature{"TopK", kBoth, R"({"temperature":1,"top_k":5})"},
        ResumedFeature{"MinP", kBoth, R"({"temperature":1,"min_p":0.1})"},
        ResumedFeature{"GreedyWithASeed", kBoth, R"({"temperature":0,"seed":7})"},
        ResumedFeature{"RepetitionPenalty", kBoth, R"({"repetition_penalty":1.2})"},
        ResumedFeature{"LogitBias", kBoth, R"({"logit_bias":{"300":19.5,"97":-100,"310":18.25}})"},
        ResumedFeature{"BadWords", kBoth, R"({"bad_words":["water","light"]})"},
        ResumedFeature{
            "AllowedTokens", kBoth,
            R"({"allowed_token_ids":[97,98,195,169,240,159,153,130,266,267,300,301,400]})"},
        ResumedFeature{"FrequencyPenaltyByABias", kBoth, R"({"frequency_penalty":2})"},
        ResumedFeature{"AnAdapter", kBoth, R"({"model":"french"})"},
        ResumedFeature{"MinTokens", kBoth, R"({"ignore_eos":false,"min_tokens":20})"},
        ResumedFeature{"SpecialTokensShown", kBoth,
                       R"({"skip_special_tokens":false,"spaces_between_special_tokens":false})"},
        ResumedFeature{"CacheSalt", kBoth, R"({"cache_salt":"mine"})"},
        ResumedFeature{"Usage", kBoth, R"({"stream_options":{"include_usage":true}})"},
        ResumedFeature{
            "UsageInEachEvent", kBoth,
            R"({"stream_options":{"include_usage":true,"continuous_usage_stats":true}})"},
        ResumedFeature{"TokenIds", kBoth, R"({"return_token_ids":true})"},
        ResumedFeature{"LogProbsOfCompletions", kText, R"({"logprobs":2})"},
        ResumedFeature{"LogProbsWithoutOthers", kText, R"({"logprobs":0,"return_token_ids":true})"},
        ResumedFeature{"PromptOfIds", kText, R"({"prompt":[256,97,98]})"},
        ResumedFeature{"OnePromptInAList", kText, R"({"prompt":["Once"]})"},
        ResumedFeature{"PromptWithoutSpecialTokens", kText, R"({"add_special_tokens":false})"},
        ResumedFeature{"MaxCompletionTokens", kChat,
                       R"({"max_completion_tokens":24,"max_tokens":3})"},
        ResumedFeature{
            "ContinuedMessage", kChat,
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"the"}],
                           "continue_final_message":true,"add_generation_prompt":false})"},
        ResumedFeature{
            "ToolsThatMayNotBeCalled", kChat,
            R"({"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"})"},
        ResumedFeature{"PartsOfText", kChat,
                       R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]})"},
        ResumedFeature{"NeutralValues", kBoth,
                       R"({"n":1,"presence_penalty":0,"response_format":{"type":"text"},"user":"me",
                           "metadata":{"a":1},"top_logprobs":0,"logit_bias":null})"}),
    [](const auto& feature) { return feature.param.name; });

// How the engine cuts its answer into events, and events into pieces.
class EachCutOfEvents : public FdCounting, public testing::WithParamInterface<const char*> {};

TEST_P(EachCutOfEvents, AStreamIsAsIfNothingHadHappened) {
  DisturbedFleet fleet(3);
  for (const std::size_t engine : {0U, 1U}) {
    oracle::set_knobs(fleet.engine(engine).knobs(), json::parse(GetParam()));
  }
  for (const bool is_chat : {false, true}) {
    const json body = long_answer(is_chat, {{"max_tokens", 60}});
    const json undisturbed = summary_of(fleet.ask_directly(2, body));
    for (int place = 1; place <= 60; ++place) {
      const Client call = fleet.ask_with_fault(body, "cut@" + std::to_string(place));
      EXPECT_EQ(summary_of(call), undisturbed) << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EachCutOfEvents,
                         testing::Values(R"({"chunk":3})", R"({"chunk":7,"random_chunks":true})",
                                         R"({"half_characters":true})", R"({"write_bytes":7})"),
                         [](const auto& knobs) {
                           std::string name = knobs.param;
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

class ResumeFeatures : public FdCounting {
 protected:
  /// The ids of the undisturbed answer.
  static std::vector<std::uint64_t> ids_of(DisturbedFleet& fleet, json body) {
    body["return_token_ids"] = true;
    const json summary = summary_of(fleet.ask_directly(1, body));
    return summary["choices"]["0"]["token_ids"];
  }
  /// Fails the first worker at each of the places, up to the last one.
  static void expect_undisturbed(DisturbedFleet& fleet, const json& body, int places = 24) {
    const json undisturbed = summary_of(fleet.ask_directly(1, body));
    const json whole = summary_of(fleet.ask_directly(1, in_one_piece(body)));
    for (const int place : kPlaces) {
      if (place > places) break;
      const std::string fault = "cut@" + std::to_string(place);
      fleet.fail_next(0, fault);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(summary_of(fleet.send_to_router(body)), undisturbed) << place;
        EXPECT_EQ(summary_of(fleet.send_to_router(in_one_piece(body))), whole) << place;
      }
    }
    EXPECT_EQ(fleet.resumes("refused"), "0");
    EXPECT_NE(fleet.resumes("resumed"), "0");
  }
  static std::shared_ptr<fleet::Card> card_of_oracle() {
    auto card = std::make_shared<fleet::Card>();
    card->name = "oracle";
    card->context_length = 32768;
    card->special_ids = {{"bos", oracle::kBegin}, {"eos", oracle::kEnd}};
    return card;
  }
  static void set_card(DisturbedFleet& fleet, const std::shared_ptr<fleet::Card>& card) {
    for (const std::size_t worker : {0U, 1U}) fleet.worker(worker).facts = card;
  }
};

// The strings lie within one token, across tokens, and across the places of the faults.
TEST_F(ResumeFeatures, StopStringsEndAnAnswerWhereTheEngineWouldEndIt) {
  DisturbedFleet fleet(2);
  for (const bool is_chat : {false, true}) {
    const json plain = long_answer(is_chat);
    const Client whole = fleet.ask_directly(1, plain);
    const std::string text = whole->text();
    ASSERT_GT(text.size(), 40U);
    std::vector<std::string> stops{text.substr(0, 2), "never"};
    for (const std::size_t begin : {std::size_t{12}, text.size() / 2, text.size() - 9}) {
      std::size_t at = begin;
      while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      std::size_t end = at + 5;
      while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      stops.push_back(text.substr(at, end - at));
    }
    for (const std::string& stop : stops) {
      for (const bool is_included : {false, true}) {
        json body = plain;
        body["stop"] = {"not in it", stop};
        body["include_stop_str_in_output"] = is_included;
        body["stream_options"] = {{"include_usage", true}};
        expect_undisturbed(fleet, body);
      }
    }
  }
}

TEST_F(ResumeFeatures, StopStringsInTheFirstTokensDoNotCount) {
  DisturbedFleet fleet(2);
  json body = long_answer(false);
  const std::string text = fleet.ask_directly(1, body)->text();
  body["stop"] = {text.substr(0, 1), text.substr(1, 1)};
  body["min_tokens"] = 9;
  expect_undisturbed(fleet, body);
}

TEST_F(ResumeFeatures, StopIdsEndAnAnswerWhereTheEngineWouldEndIt) {
  DisturbedFleet fleet(2);
  for (const bool is_chat : {false, true}) {
    const std::vector<std::uint64_t> ids = ids_of(fleet, long_answer(is_chat));
    for (const std::size_t place : {std::size_t{4}, std::size_t{15}, ids.size() - 1}) {
      for (const bool is_included : {false, true}) {
        const json more{{"stop_token_ids", {ids.at(place)}},
                        {"include_stop_str_in_output", is_included},
                        {"return_token_ids", true},
                        {"stream_options", {{"include_usage", true}}}};
        json body = long_answer(is_chat, more);
        const std::size_t length = ids_of(fleet, body).size();
        expect_undisturbed(fleet, body, static_cast<int>(length));
      }
    }
  }
}

// The engine knows the end of the text; the router, with a card, too.
TEST_F(ResumeFeatures, TheEndOfTheTextEndsAnAnswer) {
  for (const bool has_card : {false, true}) {
    DisturbedFleet fleet(2);
    if (has_card) set_card(fleet, card_of_oracle());
    int ended = 0;
    for (int prompt = 0; prompt < 60 && ended < 3; ++prompt) {
      const json more{{"prompt", "Prompt " + std::to_string(prompt)}, {"ignore_eos", false}};
      const json body = long_answer(false, more);
      const std::vector<std::uint64_t> ids = ids_of(fleet, body);
      if (ids.size() < 3 || ids.back() != oracle::kEnd) continue;
      ++ended;
      expect_undisturbed(fleet, body, static_cast<int>(ids.size()));
    }
    EXPECT_EQ(ended, 3);
  }
}

// Its text is not a part of the answer's, and without a card the router does not know its id.
TEST_F(ResumeFeatures, AnEndOfTheTextThatIsIgnoredIsNoObstacle) {
  DisturbedFleet fleet(2);
  int found = 0;
  for (int prompt = 0; prompt < 200 && found < 2; ++prompt) {
    const json body = long_answer(false, {{"prompt", "Prompt " + std::to_string(prompt)}});
    const std::vector<std::uint64_t> ids = ids_of(fleet, body);
    const auto end = std::find(ids.begin(), ids.end() - 4, oracle::kEnd);
    if (end == ids.end() - 4) continue;
    ++found;
    expect_undisturbed(fleet, body);
  }
  EXPECT_EQ(found, 2);
}

// A model's authors recommend some parameters, which engines apply, and its card has.
TEST_F(ResumeFeatures, WhatTheClientLeftOutIsThatOfTheModel) {
  DisturbedFleet fleet;
  oracle::EngineOptions engine;
  engine.model.defaults = {{"temperature", 0.6}, {"top_p", 0.95}, {"top_k", 20}};
  fleet.add_engines(2, engine);
  const auto card = card_of_oracle();
  card->generation_defaults = engine.model.defaults;
  set_card(fleet, card);
  expect_undisturbed(fleet, long_answer(true));
  expect_undisturbed(fleet, long_answer(false, {{"top_p", 0.5}}));
}

// The generator of the new worker starts again.
TEST_F(ResumeFeatures, AfterTheSeamASeededAnswerIsDrawnAnew) {
  DisturbedFleet fleet(2);
  const json body =
      long_answer(true, {{"temperature", 1}, {"seed", 7}, {"return_token_ids", true}});
  const std::vector<std::uint64_t> undisturbed = ids_of(fleet, body);
  const auto resumed_after = [&](int place) {
    const json summary = summary_of(fleet.ask_with_fault(body, "cut@" + std::to_string(place)));
    EXPECT_EQ(summary["ends"], 1);
    const json& choice = summary["choices"]["0"];
    EXPECT_EQ(choice["finish_reason"], "length");
    return choice["token_ids"].get<std::vector<std::uint64_t>>();
  };
  const std::vector<std::uint64_t> ids = resumed_after(12);
  EXPECT_EQ(ids, resumed_after(12)) << "with the same seed";
  EXPECT_EQ(ids.size(), undisturbed.size());
  const auto same = std::mismatch(ids.begin(), ids.end(), undisturbed.begin()).first - ids.begin();
  EXPECT_GE(same, 10);
  EXPECT_LE(same, 14);
  EXPECT_NE(ids, resumed_after(18));
}

// It answers 404 there.
TEST_F(ResumeFeatures, AWorkerWithoutTheAdapterIsPassedOver) {
  DisturbedFleet fleet;
  oracle::EngineOptions engine;
  engine.model.adapters = {"french"};
  fleet.add_engines(3, engine);
  const json body = long_answer(true, {{"model", "french"}});
  const json undisturbed = summary_of(fleet.ask_directly(1, body));
  fleet.engine(1).knobs().refuse_status = 404;
  fleet.engine(1).knobs().refuse_next = 1;
  fleet.fail_next(0, "cut@8");
  // The first worker in turn fails, the second one refuses, and the third one continues.
  const Client call = fleet.send_to_router(body);
  EXPECT_EQ(summary_of(call), undisturbed);
  EXPECT_NE(call->body().find(": fo-route: resumed 1\n"), std::string::npos);
  EXPECT_EQ(fleet.counts(0).faults, 1U);
  EXPECT_EQ(fleet.counts(1).refused, 1U);
  EXPECT_EQ(summary_of(fleet.send_to_router(body)), undisturbed);
}

// --- Reasoning

TEST_F(ResumeFeatures, AReasoningModelContinuesItsAnswerButNotItsThinking) {
  DisturbedFleet fleet;
  oracle::EngineOptions engine;
  engine.knobs.reasoning = true;
  engine.model.weights.thinking_tokens = 6;
  fleet.add_engines(2, engine);
  const auto card = card_of_oracle();
  card->end_of_thinking = {oracle::kEndThink};
  set_card(fleet, card);
  const json body = long_answer(true, {{"stream_options", {{"include_usage", true}}}});
  const Client direct = fleet.ask_directly(1, body);
  const json undisturbed = summary_of(direct);
  ASSERT_NE(undisturbed["choices"]["0"]["reasoning_content"], "");
  int resumed = 0;
  for (int place = 2; place <= 23; ++place) {
    const Client call = fleet.ask_with_fault(body, "cut@" + std::to_string(place));
    // The answer begins with its first text.
    if (call->error_code().empty()) {
      ++resumed;
      EXPECT_EQ(summary_of(call), undisturbed) << place;
      continue;
    }
    EXPECT_EQ(resumed, 0) << place;
    EXPECT_EQ(call->error_code(), "worker_lost");
    EXPECT_NE(call->error_message().find("the model was thinking"), std::string::npos);
    EXPECT_EQ(call->text(), "");
  }
  EXPECT_GE(resumed, 12);
}

TEST_F(ResumeFeatures, WithoutItsCardAReasoningModelDoesNotContinue) {
  DisturbedFleet fleet;
  oracle::EngineOptions engine;
  engine.knobs.reasoning = true;
  engine.model.weights.thinking_tokens = 6;
  fleet.add_engines(2, engine);
  const Client call = fleet.ask_with_fault(long_answer(true), "cut@20");
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_NE(call->error_message().find("how thinking ends"), std::string::npos)
      << call->error_message();
}

// The worker's parser takes calls and reasoning out of the text that it searches for stop strings.
TEST_F(ResumeFeatures, WhereAWorkerParsesTheTextItSearchesForStopStrings) {
  DisturbedFleet fleet(2);
  const auto card = card_of_oracle();
  card->parsers = {{"tools", "hermes"}};
  set_card(fleet, card);
  json body = long_answer(true);
  expect_undisturbed(fleet, body);
  body["stop"] = "never";
  const Client call = fleet.ask_with_fault(body, "cut@12");
  EXPECT_EQ(call->error_code(), "worker_lost");
  EXPECT_NE(call->error_message().find("token ids were not requested"), std::string::npos);
}

}  // namespace
}  // namespace fo::test
