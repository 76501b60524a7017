#include "route/resume/resumption.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/card/card.h"
#include "http/message.h"
#include "http/sse.h"
#include "route/answer/stream_chunk.h"
#include "route/request/client_request.h"

namespace fo::test {
namespace {

using nlohmann::json;
using route::Api;
using route::Resumption;
using route::TokenId;
using Ids = std::vector<TokenId>;

constexpr std::uint64_t kEos = 2;
constexpr std::uint64_t kEndOfThinking = 90;

fleet::Card full_card() {
  fleet::Card card;
  card.context_length = 100;
  card.special_ids = {{"bos", 1}, {"eos", kEos}};
  card.stop_ids = {kEos, 3};
  card.end_of_thinking = {kEndOfThinking};
  return card;
}

/// A request with some members beside its model and prompt, and the events of its answer.
class ResumedAnswer {
 public:
  ResumedAnswer(Api api, const std::string& members, const fleet::Card& card = full_card())
      : is_chat_(api == Api::kChat), request_(read(api, members, from_)), resumption_(request_) {
    resumption_.set_card(std::make_shared<const fleet::Card>(card));
    resumption_.begin();
    // The prompt is 5, 6, 7.
    add(is_chat_ ? R"({"choices":[{"delta":{"role":"assistant"}}],"prompt_token_ids":[5,6,7]})"
                 : R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":[5,6,7]}]})");
  }

  Resumption::Output add(const std::string& data) {
    Resumption::Output output = resumption_.on_event(data, route::read_stream_chunk(data));
    sent += output.events;
    tokens += output.tokens;
    return output;
  }
  /// A part of the answer; `more` are further members of its choice.
  Resumption::Output part(const Ids& ids, const std::string& text, const std::string& more = "") {
    const bool has_chat_format = is_chat_ && !is_continuation_;
    return add(
        R"({"choices":[{)" +
        (has_chat_format ? R"("delta":{"content":")" + text + "\"}" : R"("text":")" + text + "\"") +
        R"(,"token_ids":)" + json(ids).dump() + more + "}]}");
  }
  Resumption::Output finish(const Ids& ids, const std::string& text, const std::string& reason) {
    return part(ids, text, R"(,"finish_reason":")" + reason + "\"");
  }

  /// Another worker continues at the safe point, and names the prompt that it was sent.
  void resume() {
    resumption_.rewind(resumption_.transcript().safe_point(), 0);
    begin_continuation();
  }
  void begin_continuation() {
    resumption_.begin_continuation();
    is_continuation_ = true;
    add(R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":)" + body()["prompt"].dump() +
        "}]}");
  }
  [[nodiscard]] json body() const { return json::parse(resumption_.body()); }

  [[nodiscard]] Resumption& operator*() { return resumption_; }
  Resumption* operator->() { return &resumption_; }

  /// The events that the client has got.
  [[nodiscard]] std::vector<json> events() const {
    std::vector<json> events;
    http::SseReader reader;
    std::string_view bytes = sent;
    while (const auto event = reader.next(bytes)) events.push_back(json::parse(event->data));
    return events;
  }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const json& event : events()) {
      for (const json& choice : event["choices"]) {
        text += is_chat_ ? choice["delta"].value("content", "") : choice.value("text", "");
      }
    }
    return text;
  }
  [[nodiscard]] Ids ids() const {
    Ids ids;
    for (const json& event : events()) {
      for (const json& choice : event["choices"]) {
        for (const json& id : choice.value("token_ids", json::array())) ids.push_back(id);
      }
    }
    return ids;
  }
  [[nodiscard]] json last() const { return events().back(); }
  [[nodiscard]] json last_choice() const { return last()["choices"].at(0); }

  std::string sent;
  std::uint64_t tokens = 0;

 private:
  static route::ClientRequest read(Api api, const std::string& members, http::Request& from) {
    json body{{"model", "m"}, {"stream", true}};
    if (api == Api::kChat) {
      body["messages"] = {{{"role", "user"}, {"content", "hi"}}};
    } else {
      body["prompt"] = "hi";
    }
    body.update(json::parse("{" + members + "}"));
    from.method = "POST";
    from.body = body.dump();
    from.headers = {{"content-type", "application/json"}};
    route::RequestRules rules;
    rules.resume.penalties = true;
    return route::read_request(from, api, rules).request.value();
  }

  const bool is_chat_;
  http::Request from_;
  route::ClientRequest request_;
  Resumption resumption_;
  bool is_continuation_ = false;
};

ResumedAnswer completion(const std::string& members = R"("max_tokens":20)") {
  return {Api::kCompletions, members};
}
ResumedAnswer chat_answer(const std::string& members = R"("max_tokens":20)") {
  return {Api::kChat, members};
}

// --- What a worker is asked for.

TEST(ResumableBody, AsksForIdsAndUsageAndNotForStops) {
  http::Request from;
  from.method = "POST";
  from.headers = {{"content-type", "application/json"}};
  from.body =
      R"({"model":"m","prompt":"hi","stop":["x"],"include_stop_str_in_output":true,"stream":true})";
  const auto request = route::read_request(from, Api::kCompletions, {}).request.value();
  EXPECT_EQ(json::parse(route::resumable_body(request)),
            json::parse(R"({"model":"m","prompt":"hi","include_stop_str_in_output":true,
                            "stream":true,"stream_options":{"include_usage":true},
                            "return_token_ids":true})"));
}

TEST(Resumption, TheRestIsAskedForWithWhatIsLeft) {
  ResumedAnswer answer = completion(
      R"("max_tokens":20,"min_tokens":4,"seed":5,"stop":["never"],"stop_token_ids":[40],"top_p":0.5,
         "temperature":1,"logprobs":2,"echo":false,"user":"me","ignore_eos":false,
         "skip_special_tokens":false,"bad_words":["x"],"allowed_token_ids":[1,2])");
  answer.part({10, 11}, "ab");
  answer.part({12}, "c");
  answer.part({13}, "");
  answer.resume();
  const json body = answer.body();
  EXPECT_EQ(body["prompt"], json({5, 6, 7, 10, 11, 12}));
  EXPECT_EQ(body["max_tokens"], 17);
  EXPECT_EQ(body["min_tokens"], 1);
  EXPECT_EQ(body["stop_token_ids"], json({40, kEos, 3}));
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["top_p"], 0.5);
  EXPECT_EQ(body["logprobs"], 2);
  EXPECT_EQ(body["skip_special_tokens"], false);
  EXPECT_EQ(body["bad_words"], json({"x"}));
  EXPECT_EQ(body["allowed_token_ids"], json({1, 2}));
  EXPECT_EQ(body["return_token_ids"], true);
  EXPECT_EQ(body["stream_options"], json({{"include_usage", true}}));
  EXPECT_GE(body["seed"].get<std::int64_t>(), 0);
  EXPECT_NE(body["seed"], 5);
  for (const char* name : {"stop", "echo", "user", "messages"}) EXPECT_FALSE(body.contains(name));
}

TEST(Resumption, ASeedIsAnotherOneAtEachPlace) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"seed":-9223372036854775808)");
  answer.part({10}, "a");
  answer.resume();
  const json first = answer.body()["seed"];
  EXPECT_EQ(first, answer.body()["seed"]);
  answer.part({11}, "b");
  answer.resume();
  EXPECT_NE(first, answer.body()["seed"]);
  EXPECT_GE(answer.body()["seed"].get<std::int64_t>(), 0);
}

TEST(Resumption, TheModelsDefaultsAreSentWhereTheClientHasNone) {
  fleet::Card card = full_card();
  card.generation_defaults = {{"temperature", 0.6}, {"top_k", 20}};
  ResumedAnswer answer(Api::kCompletions, R"("temperature":0.1,"ignore_eos":true)", card);
  answer.part({10}, "a");
  answer.resume();
  const json body = answer.body();
  EXPECT_EQ(body["temperature"], 0.1);
  EXPECT_EQ(body["top_k"], 20);
  EXPECT_EQ(body["max_tokens"], 15) << "16, as vLLM generates without a limit";
  EXPECT_FALSE(body.contains("stop_token_ids")) << "an engine would stop at them";
  EXPECT_FALSE(body.contains("min_tokens"));
}

TEST(Resumption, AFrequencyPenaltyBecomesABias) {
  ResumedAnswer answer =
      completion(R"("max_tokens":20,"frequency_penalty":0.5,"logit_bias":{"10":2})");
  answer.part({10, 11, 10}, "aba");
  answer.resume();
  EXPECT_EQ(answer.body()["logit_bias"], json::parse(R"({"10":1.0,"11":-0.5})"));
  EXPECT_EQ(answer.body()["frequency_penalty"], 0.5);
  EXPECT_EQ(answer->refusal(), "");

  fleet::Card card = full_card();
  card.generation_defaults = {{"repetition_penalty", 1.1}};
  ResumedAnswer other(Api::kCompletions, R"("max_tokens":20,"frequency_penalty":0.5)", card);
  other.part({10}, "a");
  EXPECT_EQ(other->refusal(), "'frequency_penalty' beside the model's own repetition penalty");
}

TEST(Resumption, TheContextLimitsTheRest) {
  ResumedAnswer unlimited = chat_answer("");
  unlimited.part({10}, "a");
  unlimited.resume();
  EXPECT_EQ(unlimited.body()["max_tokens"], 100 - 3 - 1);

  fleet::Card unknown;
  ResumedAnswer answer(Api::kChat, "", unknown);
  answer.part({10}, "a");
  EXPECT_EQ(answer->refusal(), "the length of the model's context is not known");
  ResumedAnswer limited(Api::kChat, R"("max_completion_tokens":9)", unknown);
  limited.part({10}, "a");
  EXPECT_EQ(limited->refusal(), "");
}

// --- What the client gets.

TEST(Resumption, AChatGoesOnInItsOwnFormat) {
  ResumedAnswer answer = chat_answer();
  EXPECT_EQ(answer.sent, "") << "a role is no content";
  answer.part({10}, "ab");
  answer.resume();
  answer.part({11}, "cd");
  answer.finish({12}, "e", "length");
  EXPECT_EQ(answer.text(), "abcde");
  const std::vector<json> events = answer.events();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[2], json::parse(R"({"choices":[{"index":0,"delta":{"content":"cd"},
      "logprobs":null,"finish_reason":null,"stop_reason":null}]})"));
  EXPECT_EQ(answer.last_choice()["finish_reason"], "length");
  EXPECT_EQ(answer.tokens, 3U);
}

TEST(Resumption, IdsAreOnlyForWhoAsksForThem) {
  for (const bool is_wanted : {false, true}) {
    ResumedAnswer answer = completion(R"("max_tokens":20,"return_token_ids":)" +
                                      std::string(is_wanted ? "true" : "false"));
    answer.part({10}, "a");
    answer.part({11}, "");
    answer.resume();
    answer.part({11}, "");
    answer.part({12}, "b");
    answer.finish({13}, "", "length");
    EXPECT_EQ(answer.text(), "ab");
    EXPECT_EQ(answer.ids(), is_wanted ? (Ids{10, 11, 12, 13}) : Ids{});
    EXPECT_EQ(answer.sent.find("prompt_token_ids") != std::string::npos, is_wanted);
    EXPECT_EQ(answer.tokens, 4U);
  }
}

TEST(Resumption, HalfACharacterWaitsForTheOther) {
  ResumedAnswer answer = completion();
  answer.part({10}, "a");
  EXPECT_EQ(answer.part({11}, R"(b\ud83d)").events, "");
  answer.part({12}, R"(\ude42)");
  EXPECT_EQ(answer.text(), "ab\xF0\x9F\x99\x82");
  // The halves come from two workers.
  answer.part({13}, R"(c\ud83d)");
  answer.resume();
  EXPECT_EQ(answer.body()["prompt"], json({5, 6, 7, 10, 11, 12}));
  answer.part({13, 14}, R"(c\ud83d\ude42)");
  EXPECT_EQ(answer.text(),
            "ab\xF0\x9F\x99\x82"
            "c\xF0\x9F\x99\x82");
  EXPECT_EQ(answer.tokens, 5U);
}

TEST(Resumption, WhatIsHeldForAStopStringStaysHeld) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"stop":["END","xyz"])");
  answer.part({10}, "aE");
  EXPECT_EQ(answer.text(), "a");
  answer.resume();
  EXPECT_EQ(answer.body()["prompt"], json({5, 6, 7, 10})) << "what is held is not asked again";
  answer.part({11}, "N");
  EXPECT_EQ(answer.text(), "a");
  answer.resume();
  const Resumption::Output output = answer.part({12}, "D and more");
  EXPECT_TRUE(output.is_complete);
  EXPECT_EQ(answer.text(), "a");
  EXPECT_EQ(answer.last_choice()["finish_reason"], "stop");
  EXPECT_EQ(answer.last_choice()["stop_reason"], "END");
}

TEST(Resumption, WhatWasHeldForNothingIsSent) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"stop":["END"])");
  answer.part({10}, "aE");
  answer.resume();
  answer.part({11}, "Nb");
  EXPECT_EQ(answer.text(), "aENb");
  answer.finish({12}, "E", "length");
  EXPECT_EQ(answer.text(), "aENbE");
}

TEST(Resumption, AStopStringCountsAfterTheFirstTokensOnly) {
  for (const bool lacks_token_ids : {false, true}) {
    ResumedAnswer answer = completion(R"("max_tokens":20,"min_tokens":2,"stop":"x"
        ,"include_stop_str_in_output":true)");
    const auto part = [&](TokenId id, const std::string& text) {
      if (!lacks_token_ids) return answer.part({id}, text);
      return answer.add(R"({"choices":[{"text":")" + text + "\"}]}");
    };
    part(10, "ax");
    part(11, "bx");
    EXPECT_TRUE(part(12, "cxd").is_complete) << lacks_token_ids;
    EXPECT_EQ(answer.text(), "axbxcx");
  }
}

TEST(Resumption, OffsetsOfLogprobsGoOn) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"logprobs":0)");
  const std::string logprobs = R"(,"logprobs":{"text_offset":[0,1],"tokens":["é","b"],"x":-0.25})";
  answer.part({10, 11}, "éb", logprobs);
  EXPECT_EQ(answer.last_choice()["logprobs"]["text_offset"], json({0, 1}));
  answer.resume();
  answer.part({12, 13}, "éb", logprobs);
  EXPECT_EQ(answer.last_choice()["logprobs"],
            json::parse(R"({"text_offset":[2,3],"tokens":["é","b"],"x":-0.25})"));
  answer.resume();
  answer.part({14, 15}, "éb", logprobs);
  EXPECT_EQ(answer.last_choice()["logprobs"]["text_offset"], json({4, 5}));
  EXPECT_EQ(answer->max_rewind(), 0U) << "a token would be there twice";
}

TEST(Resumption, TheUsageIsThatOfOneAnswer) {
  const std::string usage = R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}})";
  for (const bool is_continuous : {false, true}) {
    ResumedAnswer answer = completion(
        R"("max_tokens":20,"stream_options":{"include_usage":true,"continuous_usage_stats":)" +
        std::string(is_continuous ? "true}" : "false}"));
    answer.part({10}, "a");
    answer.resume();
    answer.part({11}, "b");
    EXPECT_EQ(answer.last().contains("usage"), is_continuous);
    if (is_continuous) {
      EXPECT_EQ(answer.last()["usage"]["completion_tokens"], 2);
    }
    answer.finish({12}, "c", "length");
    EXPECT_EQ(answer.add(usage).events, "") << "it is that of the rest";
    answer.sent += answer->closing();
    EXPECT_EQ(answer.last(), json::parse(R"({"choices":[],
        "usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6}})"));
  }
  ResumedAnswer unasked = completion();
  unasked.part({10}, "a");
  EXPECT_EQ(unasked.add(usage).events, "");
  EXPECT_EQ(unasked->closing(), "");
  // That of an undisturbed answer is the engine's own.
  ResumedAnswer undisturbed = completion(R"("stream_options":{"include_usage":true})");
  undisturbed.finish({10}, "a", "stop");
  undisturbed.add(usage);
  EXPECT_EQ(undisturbed.last(), json::parse(usage));
  EXPECT_EQ(undisturbed->closing(), "");
}

TEST(Resumption, TheUsageOfAnEngineWithoutIdsIsOnlyTheOneThatItNames) {
  const std::string options =
      R"("stop":"x","stream_options":{"include_usage":true,"continuous_usage_stats":true})";
  ResumedAnswer answer = completion(options);
  answer->begin();
  EXPECT_TRUE(answer.add(R"({"choices":[{"text":"ax"}]})").is_complete);
  EXPECT_FALSE(answer.last().contains("usage"));
  EXPECT_EQ(answer->closing(), "");
  ResumedAnswer named = completion(options);
  named->begin();
  named.add(R"({"choices":[{"text":"ax"}],"usage":{"prompt_tokens":4,"completion_tokens":1}})");
  EXPECT_EQ(named.last()["usage"]["total_tokens"], 5);
  named.sent += named->closing();
  EXPECT_EQ(named.last()["usage"]["total_tokens"], 5);
}

TEST(Resumption, ASecondAttemptFromTheBeginningForgetsTheFirst) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"stop":["ab"])");
  answer.part({10}, "xa");
  answer->begin();
  answer.sent.clear();
  answer.add(R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":[8]}]})");
  EXPECT_FALSE(answer.part({11}, "b").is_complete);
  EXPECT_EQ(answer.text(), "b");
  answer.resume();
  EXPECT_EQ(answer.body()["prompt"], json({8, 11}));
}

// --- The seam.

TEST(Resumption, TokensThatComeAgainAreNotSentAgain) {
  ResumedAnswer answer = completion(R"("max_tokens":20,"stop":["never"])");
  answer.part({10}, "ab");
  answer.part({11}, "cd");
  EXPECT_EQ(answer->max_rewind(), 2U);
  answer->rewind(1, 2);
  answer.begin_continuation();
  EXPECT_EQ(answer.body()["max_tokens"], 19);
  answer.part({11}, "cd");
  answer.part({12}, "e");
  EXPECT_EQ(answer.text(), "abcde");
  EXPECT_EQ(answer.tokens, 3U);
}

TEST(Resumption, TheUsageDoesNotFallWhenTokensComeAgain) {
  ResumedAnswer answer = completion(
      R"("max_tokens":20,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  answer.part({10}, "ab");
  answer.part({11}, "cd");
  answer.part({12}, "ef");
  answer->rewind(1, 4);
  answer.begin_continuation();
  answer.sent.clear();
  for (const TokenId id : {11U, 12U, 13U})
    answer.part({id}, id == 13 ? "g" : id == 11 ? "cd" : "ef");
  std::vector<json> counts;
  for (const json& event : answer.events()) counts.push_back(event["usage"]["completion_tokens"]);
  // The first event names the prompt.
  EXPECT_EQ(counts, (std::vector<json>{3, 3, 3, 4}));
}

TEST(Resumption, OtherTextIsNotAContinuation) {
  // The token with the other text would even end the answer.
  ResumedAnswer answer = completion(R"("max_tokens":3)");
  answer.part({10}, "ab");
  answer.part({11}, "cd");
  answer->rewind(1, 2);
  answer.begin_continuation();
  EXPECT_EQ(answer.part({kEos}, "x").mismatch,
            "the worker does not continue the answer: its text differs");
  EXPECT_EQ(answer->finish_here(), std::nullopt);
  EXPECT_EQ(answer->transcript().answer(), Ids{10});
}

TEST(Resumption, TheNewWorkerMustHaveTheSamePrompt) {
  const std::string prefix = "the worker does not continue the answer: ";
  for (const auto& [first, mismatch] : std::vector<std::pair<std::string, std::string>>{
           {R"({"choices":[{"text":"b","token_ids":[11],"prompt_token_ids":[5,6,7,10]}]})", ""},
           {R"({"choices":[{"text":"b","token_ids":[11]}],"prompt_token_ids":[5,6,7,10]})", ""},
           {R"({"choices":[{"text":"b","token_ids":[11],"prompt_token_ids":[1,5,6,7,10]}]})",
            prefix + "its prompt has other tokens"},
           {R"({"choices":[{"text":"","token_ids":[],"prompt_token_ids":[5,6,7]}]})",
            prefix + "its prompt has other tokens"},
           {R"({"choices":[{"text":"b","token_ids":[11],"prompt_token_ids":null}]})",
            prefix + "it does not report the prompt's token ids"},
           {R"({"choices":[{"text":"b"}]})", prefix + "it does not report the prompt's token ids"},
           {R"({"choices":[{"text":"","finish_reason":"stop"}]})",
            prefix + "it does not report the prompt's token ids"}}) {
    ResumedAnswer answer = completion();
    answer.part({10}, "a");
    answer->rewind(1, 0);
    answer->begin_continuation();
    const Resumption::Output output = answer.add(first);
    EXPECT_EQ(output.mismatch, mismatch) << first;
    EXPECT_EQ(answer.text(), mismatch.empty() ? "ab" : "a");
  }
}

TEST(Resumption, SpecialIdsAreHiddenUnlessTheClientWantsThem) {
  EXPECT_EQ(completion()->hidden_ids(), (std::set<TokenId>{1, 2, 3}));
  EXPECT_EQ(completion(R"("skip_special_tokens":false)")->hidden_ids(), std::set<TokenId>{});
}

// --- An answer that needs no worker any more.

struct Ending {
  const char* members;
  Ids ids;
  const char* finish;
  json stop_reason;
};

class EachEnding : public testing::TestWithParam<Ending> {};

TEST_P(EachEnding, IsMadeHere) {
  const Ending& ending = GetParam();
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    ResumedAnswer answer(api, ending.members);
    answer.part({10}, "a");
    answer.part(ending.ids, "");
    const auto output = answer->finish_here();
    ASSERT_TRUE(output);
    answer.sent += output->events;
    EXPECT_EQ(answer.text(), "a");
    EXPECT_EQ(answer.last_choice()["finish_reason"], ending.finish);
    EXPECT_EQ(answer.last_choice()["stop_reason"], ending.stop_reason);
    EXPECT_EQ(answer.tokens + output->tokens, 1 + ending.ids.size());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Resumption, EachEnding,
    testing::Values(
        Ending{R"("max_tokens":9)", {kEos}, "stop", nullptr},
        Ending{R"("max_tokens":9)", {11, 3}, "stop", nullptr},
        Ending{R"("max_tokens":9,"stop_token_ids":[40])", {40}, "stop", 40},
        Ending{R"("max_tokens":9,"stop_token_ids":[40],"ignore_eos":true)", {40}, "stop", 40},
        Ending{R"("max_tokens":3)", {11, 12}, "length", nullptr},
        Ending{R"("max_tokens":2,"stop_token_ids":[40])", {40}, "stop", 40}));

TEST(Resumption, AnAnswerThatGoesOnNeedsAWorker) {
  ResumedAnswer answer = completion(R"("max_tokens":9,"ignore_eos":true,"stop_token_ids":[40])");
  EXPECT_EQ(answer->finish_here(), std::nullopt);
  answer.part({10}, "a");
  EXPECT_EQ(answer->finish_here(), std::nullopt);
  answer.part({kEos}, "");
  EXPECT_EQ(answer->finish_here(), std::nullopt);
}

TEST(Resumption, ACharacterWhoseOtherHalfIsMissingNeedsAWorker) {
  ResumedAnswer answer = completion(R"("max_tokens":2)");
  answer.part({10}, "a");
  answer.part({11}, R"(\ud83d)");
  EXPECT_EQ(answer->finish_here(), std::nullopt);
  answer.resume();
  EXPECT_EQ(answer.body()["max_tokens"], 1);
}

TEST(Resumption, TokensWithoutTextAreAPartOfTheAnswerThatEndsHere) {
  ResumedAnswer answer = completion(R"("max_tokens":3,"return_token_ids":true,"stop":["ab"])");
  answer.part({10}, "a");
  answer.part({11}, "");
  answer.part({12}, "");
  const auto output = answer->finish_here();
  ASSERT_TRUE(output);
  answer.sent += output->events;
  EXPECT_EQ(answer.ids(), (Ids{10, 11, 12}));
  EXPECT_EQ(answer.text(), "a") << "what was held for a stop string, too";
  EXPECT_EQ(answer.tokens + output->tokens, 3U);
}

// --- Reasoning.

std::string thought(TokenId id, const std::string& text) {
  return R"({"choices":[{"delta":{"reasoning_content":")" + text + R"("},"token_ids":[)" +
         std::to_string(id) + "]}]}";
}

TEST(Resumption, AThinkingModelContinuesOnceItHasThought) {
  ResumedAnswer answer = chat_answer();
  answer.add(thought(10, "hm"));
  EXPECT_EQ(answer->refusal(), "the model was thinking");
  answer.add(thought(kEndOfThinking, ""));
  EXPECT_EQ(answer->refusal(), "the model was thinking") << "its text may follow";
  answer.part({11}, "yes");
  EXPECT_EQ(answer->refusal(), "");
  EXPECT_EQ(answer->transcript().seam_begin(), 3U);
  answer.resume();
  EXPECT_EQ(answer.body()["prompt"], json({5, 6, 7, 10, kEndOfThinking, 11}));
  answer.part({12}, "!");
  EXPECT_EQ(answer.text(), "yes!");
}

TEST(Resumption, ThinkingMayHaveNoText) {
  ResumedAnswer answer = chat_answer();
  answer.add(thought(kEndOfThinking, ""));
  answer.part({11}, "yes");
  EXPECT_EQ(answer->transcript().seam_begin(), 2U);
}

TEST(Resumption, TheEndOfThinkingMustBeKnown) {
  fleet::Card card = full_card();
  card.end_of_thinking.clear();
  ResumedAnswer answer(Api::kChat, R"("max_tokens":20)", card);
  answer.add(thought(10, "hm"));
  answer.part({11}, "yes");
  EXPECT_EQ(answer->refusal(), "the model's card does not say how thinking ends");
}

// --- Refusals.

TEST(Resumption, AnEngineThatDoesNotNameItsTokensIsPlain) {
  ResumedAnswer answer = completion();
  EXPECT_EQ(answer->refusal(), "");
  answer.add(R"({"choices":[{"text":"a"}]})");
  EXPECT_TRUE(answer->lacks_token_ids());
  EXPECT_EQ(answer->refusal(), "the worker does not report token ids");
  EXPECT_EQ(answer->finish_here(), std::nullopt);

  ResumedAnswer promptless = completion();
  promptless->begin();
  promptless.part({10}, "a");
  EXPECT_EQ(promptless->refusal(), "the worker does not report the prompt's token ids");
}

TEST(Resumption, AFieldThatIsNotRepeatedRefuses) {
  ResumedAnswer answer = chat_answer(R"("max_tokens":20,"presence_penalty":1)");
  answer.part({10}, "a");
  EXPECT_EQ(answer->refusal(),
            "'presence_penalty': the engine looks only at the tokens that it generated itself");
}

}  // namespace
}  // namespace fo::test
