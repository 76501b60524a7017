#include "route/resume/rules.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fo::test {
namespace {

using nlohmann::json;
using route::Api;
using route::ResumeFacts;
using route::ResumeOptions;

// The facts of a request with some members beside its model and prompt.
ResumeFacts read_facts(Api api, const std::string& members, const ResumeOptions& options = {}) {
  const std::string prompt =
      api == Api::kChat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  json body = json::parse(R"({"model":"m",)" + prompt + "}");
  body.update(json::parse("{" + members + "}"));
  return route::read_resume_facts(body, api, options);
}
ResumeFacts chat_facts(const std::string& members, const ResumeOptions& options = {}) {
  return read_facts(Api::kChat, members, options);
}
ResumeFacts completion_facts(const std::string& members, const ResumeOptions& options = {}) {
  return read_facts(Api::kCompletions, members, options);
}

constexpr ResumeOptions kStrictSeed{.strict_seed = true};
constexpr ResumeOptions kPenalties{.penalties = true};

std::string plain(const std::string& members) {
  return members.empty() ? R"("model":"m")" : R"("model":"m",)" + members;
}

class BothApis : public testing::TestWithParam<Api> {};

INSTANTIATE_TEST_SUITE_P(ResumeRules, BothApis, testing::Values(Api::kChat, Api::kCompletions));

TEST_P(BothApis, APlainRequestContinues) {
  const ResumeFacts facts = read_facts(GetParam(), "");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.repeated, R"("model":"m")");
  EXPECT_TRUE(facts.given.empty());
  EXPECT_TRUE(facts.stops.empty());
  EXPECT_FALSE(facts.include_stop);
  EXPECT_EQ(facts.min_tokens, 0U);
  EXPECT_FALSE(facts.max_tokens);
  EXPECT_TRUE(facts.stop_ids.empty());
  EXPECT_FALSE(facts.ignore_eos);
  EXPECT_FALSE(facts.seed);
  EXPECT_TRUE(facts.skip_special_tokens);
  EXPECT_FALSE(facts.wants_ids);
  EXPECT_FALSE(facts.wants_usage);
  EXPECT_FALSE(facts.wants_continuous_usage);
  EXPECT_FALSE(facts.logprobs);
  EXPECT_TRUE(facts.logit_bias.empty());
  EXPECT_EQ(facts.frequency_penalty, 0);
}

TEST_P(BothApis, SamplingParametersAreRepeatedAsGiven) {
  const std::string members =
      R"("min_p":0.1,"repetition_penalty":1.0,"temperature":0,"top_k":-1,"top_p":0.95)";
  const ResumeFacts facts = read_facts(GetParam(), members);
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(json::parse("{" + facts.repeated + "}"), json::parse("{" + plain(members) + "}"));
  EXPECT_EQ(facts.given, (std::set<std::string>{"min_p", "repetition_penalty", "temperature",
                                                "top_k", "top_p"}));
}

TEST_P(BothApis, TheOthersAreLeftToTheCard) {
  const ResumeFacts facts = read_facts(GetParam(), R"("temperature":0.5,"top_p":null)");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.repeated, R"("model":"m","temperature":0.5)");
  EXPECT_EQ(facts.given, std::set<std::string>{"temperature"});
}

TEST_P(BothApis, ConstraintsOfTokensAndTextAreRepeated) {
  for (const std::string member :
       {R"("allowed_token_ids":[1,2])", R"("bad_words":["a \"b\""])", R"("cache_salt":"s")",
        R"("priority":1)", R"("lora_path":"adapter")", R"("spaces_between_special_tokens":false)",
        R"("ignore_eos":true)", R"("skip_special_tokens":false)",
        R"("include_stop_str_in_output":true)"}) {
    const ResumeFacts facts = read_facts(GetParam(), member);
    EXPECT_EQ(facts.refusal, "") << member;
    EXPECT_EQ(json::parse("{" + facts.repeated + "}"), json::parse("{" + plain(member) + "}"));
    EXPECT_TRUE(facts.given.empty()) << member;
  }
}

TEST_P(BothApis, FlagsAreRead) {
  const ResumeFacts facts = read_facts(
      GetParam(), R"("ignore_eos":true,"skip_special_tokens":false,"return_token_ids":true,)"
                  R"("include_stop_str_in_output":true)");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_TRUE(facts.ignore_eos);
  EXPECT_FALSE(facts.skip_special_tokens);
  EXPECT_TRUE(facts.wants_ids);
  EXPECT_TRUE(facts.include_stop);
  EXPECT_EQ(facts.repeated.find("return_token_ids"), std::string::npos);
}

TEST_P(BothApis, StopStringsAreATextOrAList) {
  EXPECT_EQ(read_facts(GetParam(), R"("stop":"a")").stops, std::vector<std::string>{"a"});
  EXPECT_EQ(read_facts(GetParam(), R"("stop":["b","a"])").stops,
            (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(read_facts(GetParam(), R"("stop":[])").refusal, "");
  EXPECT_EQ(read_facts(GetParam(), R"("stop":"a")").repeated, R"("model":"m")");
  for (const std::string stop : {R"("")", R"(["a",""])", "1", R"(["a",2])", R"({"a":"b"})"}) {
    EXPECT_EQ(read_facts(GetParam(), R"("stop":)" + stop).refusal,
              "'stop': expected a text, or a list of texts, that are not empty");
  }
}

TEST_P(BothApis, StopStringsHaveALimit) {
  const auto members = [](std::size_t size) {
    return R"("stop":["a",")" + std::string(size - 1, 'x') + "\"]";
  };
  EXPECT_EQ(read_facts(GetParam(), members(route::kMaxStopBytes)).refusal, "");
  EXPECT_EQ(read_facts(GetParam(), members(route::kMaxStopBytes + 1)).refusal, "'stop': too long");
}

TEST_P(BothApis, LimitsOfTheAnswerAreRead) {
  const ResumeFacts facts =
      read_facts(GetParam(), R"("max_tokens":9,"min_tokens":2,"stop_token_ids":[7,5])");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.max_tokens, 9U);
  EXPECT_EQ(facts.min_tokens, 2U);
  EXPECT_EQ(facts.stop_ids, (std::vector<std::uint64_t>{7, 5}));
  EXPECT_EQ(facts.repeated, R"("model":"m")");
}

TEST(ResumeRules, AChatHasANewerNameForItsLimit) {
  EXPECT_EQ(chat_facts(R"("max_completion_tokens":5,"max_tokens":9)").max_tokens, 5U);
  EXPECT_EQ(chat_facts(R"("max_completion_tokens":5)").max_tokens, 5U);
  EXPECT_EQ(chat_facts(R"("max_completion_tokens":null,"max_tokens":9)").max_tokens, 9U);
  EXPECT_NE(completion_facts(R"("max_completion_tokens":5)").refusal, "");
}

TEST_P(BothApis, SeededAnswersContinueUnlessSeedsAreStrict) {
  EXPECT_EQ(read_facts(GetParam(), R"("seed":-5)").seed, -5);
  EXPECT_EQ(read_facts(GetParam(), R"("seed":9223372036854775807)").seed, 9223372036854775807);
  EXPECT_EQ(read_facts(GetParam(), R"("seed":5,"temperature":1)").refusal, "");
  EXPECT_EQ(read_facts(GetParam(), R"("seed":5)").repeated, R"("model":"m")");
  EXPECT_EQ(read_facts(GetParam(), R"("seed":5)", kStrictSeed).refusal,
            "'seed': the random numbers would start again");
  EXPECT_NE(read_facts(GetParam(), R"("seed":5,"temperature":0.1)", kStrictSeed).refusal, "");
  // A greedy answer does not depend on it.
  EXPECT_EQ(read_facts(GetParam(), R"("seed":5,"temperature":0.0)", kStrictSeed).refusal, "");
  EXPECT_EQ(read_facts(GetParam(), R"("temperature":1)", kStrictSeed).refusal, "");
}

TEST_P(BothApis, LogitBiasIsReadByToken) {
  const ResumeFacts facts = read_facts(GetParam(), R"("logit_bias":{"10":-100,"7":0.5})");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.logit_bias,
            (std::vector<std::pair<std::uint32_t, double>>{{10, -100}, {7, 0.5}}));
  EXPECT_EQ(facts.repeated, R"("model":"m")");
  EXPECT_EQ(read_facts(GetParam(), R"("logit_bias":{})").refusal, "");
}

TEST_P(BothApis, PenaltiesOfGeneratedTokensAreRefused) {
  const std::string reason = ": the engine looks only at the tokens that it generated itself";
  for (const ResumeOptions& options : {ResumeOptions{}, kPenalties}) {
    EXPECT_EQ(read_facts(GetParam(), R"("presence_penalty":0.1)", options).refusal,
              "'presence_penalty'" + reason);
    EXPECT_EQ(read_facts(GetParam(), R"("presence_penalty":0.0)", options).refusal, "");
    EXPECT_EQ(read_facts(GetParam(), R"("frequency_penalty":0)", options).refusal, "");
    EXPECT_EQ(read_facts(GetParam(), R"("frequency_penalty":0)", options).repeated,
              R"("model":"m")");
    EXPECT_EQ(read_facts(GetParam(), R"("repetition_detection":{"min_count":3})", options).refusal,
              "'repetition_detection'" + reason);
    EXPECT_NE(read_facts(GetParam(), R"("no_repeat_ngram_size":3)", options).refusal, "");
  }
  EXPECT_EQ(read_facts(GetParam(), R"("frequency_penalty":0.5)").refusal,
            "'frequency_penalty'" + reason);
}

TEST_P(BothApis, AFrequencyPenaltyCanBecomeABias) {
  const ResumeFacts facts = read_facts(GetParam(), R"("frequency_penalty":0.5)", kPenalties);
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.frequency_penalty, 0.5);
  EXPECT_EQ(facts.repeated, R"("frequency_penalty":0.5,"model":"m")");
  const std::string both = R"("frequency_penalty":0.5,"repetition_penalty":)";
  EXPECT_EQ(read_facts(GetParam(), both + "1.0", kPenalties).refusal, "");
  EXPECT_EQ(read_facts(GetParam(), both + "1.1", kPenalties).refusal,
            "'frequency_penalty': no bias replaces it beside a repetition penalty");
}

TEST(ResumeRules, LogProbsOfCompletionsContinue) {
  const ResumeFacts facts = completion_facts(R"("logprobs":0)");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_EQ(facts.logprobs, 0U);
  EXPECT_EQ(facts.repeated, R"("logprobs":0,"model":"m")");
  EXPECT_NE(completion_facts(R"("logprobs":3,"return_tokens_as_token_ids":true)").refusal, "");
  EXPECT_NE(completion_facts(R"("logprobs":3,"logprob_token_ids":[1])").refusal, "");
}

TEST(ResumeRules, LogProbsOfChatsDoNot) {
  EXPECT_EQ(chat_facts(R"("logprobs":true)").refusal, "'logprobs': log-probs of a chat");
  EXPECT_EQ(chat_facts(R"("logprobs":true,"top_logprobs":3)").refusal,
            "'logprobs': log-probs of a chat");
  EXPECT_EQ(chat_facts(R"("top_logprobs":3)").refusal, "'top_logprobs': log-probs of a chat");
  EXPECT_EQ(chat_facts(R"("logprobs":false,"top_logprobs":0)").refusal, "");
}

TEST(ResumeRules, OfferedToolsAreRefused) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  for (const std::string choice :
       {"", R"(,"tool_choice":null)", R"(,"tool_choice":"auto")", R"(,"tool_choice":"required")",
        R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"}) {
    EXPECT_EQ(chat_facts(tools + choice).refusal, "'tools': the worker parses the calls") << choice;
  }
  EXPECT_EQ(chat_facts(tools + R"(,"tool_choice":"none","parallel_tool_calls":true)").refusal, "");
  EXPECT_EQ(chat_facts(R"("tools":[],"tool_choice":"auto")").refusal, "");
  EXPECT_EQ(chat_facts(R"("tool_choice":"none")").refusal, "");
  EXPECT_NE(chat_facts(R"("functions":[{"name":"f"}])").refusal, "");
}

TEST(ResumeRules, AStreamMayPauseIfTheEngineParsesCallsOrHidesTheReasoning) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_TRUE(chat_facts(tools).may_pause);
  EXPECT_FALSE(chat_facts(tools).hides_reasoning);
  for (const char* other :
       {R"(,"tool_choice":"none")", R"(,"tool_choice":"none","include_reasoning":true)"}) {
    EXPECT_FALSE(chat_facts(tools + other).may_pause) << other;
  }
  for (const char* hidden : {R"("include_reasoning":false)", R"("stream_reasoning":false)"}) {
    EXPECT_TRUE(chat_facts(hidden).may_pause) << hidden;
    EXPECT_TRUE(chat_facts(hidden).hides_reasoning) << hidden;
  }
  // The reasoning is a part of the text then.
  EXPECT_FALSE(chat_facts(R"("separate_reasoning":false)").may_pause);
}

TEST(ResumeRules, EarlierCallsInTheMessagesAreText) {
  const ResumeFacts facts =
      chat_facts(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},"b"]},)"
                 R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
                 R"("function":{"name":"f","arguments":"{}"}}]},)"
                 R"({"role":"tool","tool_call_id":"1","content":"c"}])");
  EXPECT_EQ(facts.refusal, "");
}

TEST(ResumeRules, ImagesAndAudioAreRefused) {
  for (const std::string part :
       {R"({"type":"image_url","image_url":{"url":"data:"}})", R"({"type":"input_audio"})",
        R"({"image_url":{"url":"data:"}})", R"({"type":1})", "5"}) {
    const ResumeFacts facts = chat_facts(
        R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},)" + part + "]}]");
    EXPECT_EQ(facts.refusal, "'messages': a part is not text") << part;
  }
  EXPECT_NE(chat_facts(R"("messages":[{"role":"assistant","audio":{"id":"a"}}])").refusal, "");
  EXPECT_NE(chat_facts(R"("modalities":["text","audio"])").refusal, "");
  EXPECT_EQ(chat_facts(R"("modalities":["text"])").refusal, "");
  EXPECT_NE(chat_facts(R"("audio":{"voice":"alloy"})").refusal, "");
  EXPECT_NE(chat_facts(R"("mm_processor_kwargs":{"a":1})").refusal, "");
}

TEST(ResumeRules, OnlyOnePromptContinues) {
  for (const std::string prompt : {R"("a")", R"(["a"])", "[1,2,3]", "[[1,2,3]]", "[]"}) {
    EXPECT_EQ(completion_facts(R"("prompt":)" + prompt).refusal, "") << prompt;
  }
  for (const std::string prompt : {R"(["a","b"])", "[[1],[2]]"}) {
    EXPECT_EQ(completion_facts(R"("prompt":)" + prompt).refusal, "'prompt': several prompts")
        << prompt;
  }
}

TEST_P(BothApis, GuidedDecodingIsRefused) {
  EXPECT_EQ(read_facts(GetParam(), R"("response_format":{"type":"json_object"})").refusal,
            "'response_format': guided decoding starts from its beginning");
  EXPECT_EQ(read_facts(GetParam(), R"("response_format":{"type":"text"})").refusal, "");
  for (const std::string member :
       {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})",
        R"("structured_outputs":{"regex":"a+"})", R"("guided_json":{})", R"("guided_regex":"a")",
        R"("guided_choice":["a"])", R"("guided_grammar":"a")", R"("json_schema":"{}")",
        R"("regex":"a+")", R"("ebnf":"root ::= \"a\"")", R"("structural_tag":{})"}) {
    EXPECT_NE(read_facts(GetParam(), member).refusal, "") << member;
  }
}

TEST_P(BothApis, ChoicesOfWhichOneIsDeliveredOrMoreAreRefused) {
  for (const std::string member : {R"("n":2)", R"("best_of":2)", R"("use_beam_search":true)",
                                   R"("length_penalty":0.5)", R"("n":"1")"}) {
    EXPECT_NE(read_facts(GetParam(), member).refusal, "") << member;
  }
  EXPECT_EQ(read_facts(GetParam(), R"("n":2)").refusal, "'n': several choices");
  EXPECT_EQ(
      read_facts(GetParam(), R"("n":1,"best_of":1,"use_beam_search":false,"length_penalty":1.0)")
          .refusal,
      "");
}

TEST_P(BothApis, WhatIsPassedThroughUntouchedIsRefused) {
  EXPECT_EQ(read_facts(GetParam(), R"("echo":true)").refusal,
            "'echo': the answer begins with the prompt");
  for (const std::string member :
       {R"("include_reasoning":false)", R"("prompt_logprobs":0)", R"("suffix":"a")",
        R"("prompt_embeds":"AAAA")", R"("thinking_token_budget":10)"}) {
    EXPECT_NE(read_facts(GetParam(), member).refusal, "") << member;
  }
  EXPECT_EQ(
      read_facts(GetParam(), R"("echo":false,"include_reasoning":true,"suffix":null)").refusal, "");
}

TEST_P(BothApis, FieldsOfOneEngineAreRefused) {
  for (const std::string member :
       {R"("stop_regex":"a+")", R"("no_stop_trim":true)", R"("min_new_tokens":5)",
        R"("return_hidden_states":true)", R"("custom_logit_processor":"a")",
        R"("separate_reasoning":false)", R"("stream_reasoning":false)", R"("input_ids":[1])",
        R"("vllm_xargs":{"a":1})", R"("kv_transfer_params":{})", R"("watermarking":true)",
        R"("return_prompt_text":true)", R"("logits_processors":["a"])"}) {
    EXPECT_NE(read_facts(GetParam(), member).refusal, "") << member;
  }
  EXPECT_EQ(read_facts(GetParam(), R"("no_stop_trim":false,"return_hidden_states":false,)"
                                   R"("separate_reasoning":true,"stream_reasoning":true)")
                .refusal,
            "");
}

TEST_P(BothApis, AnUnknownFieldIsNamed) {
  EXPECT_EQ(read_facts(GetParam(), R"("new_field":1)").refusal,
            "'new_field': a continuation cannot have it");
  EXPECT_EQ(read_facts(GetParam(), R"("new_field":false)").refusal,
            "'new_field': a continuation cannot have it");
  EXPECT_EQ(read_facts(GetParam(), R"("new_field":null)").refusal, "");
}

TEST_P(BothApis, FieldsOfThePromptAndOfAccountsDoNotMatter) {
  for (const std::string member :
       {R"("user":"u")", R"("metadata":{"a":"b"})", R"("store":false)", R"("service_tier":"auto")",
        R"("safety_identifier":"s")", R"("prompt_cache_key":"k")", R"("stream":true)",
        R"("reasoning_effort":"low")", R"("chat_template_kwargs":{"enable_thinking":false})",
        R"("chat_template":"{{ a }}")", R"("add_generation_prompt":false)",
        R"("continue_final_message":true)", R"("add_special_tokens":false)",
        R"("documents":[{"text":"a"}])", R"("truncate_prompt_tokens":5)",
        R"("truncation_side":"left")"}) {
    const ResumeFacts facts = read_facts(GetParam(), member);
    EXPECT_EQ(facts.refusal, "") << member;
    EXPECT_EQ(facts.repeated, R"("model":"m")") << member;
  }
  EXPECT_NE(read_facts(GetParam(), R"("store":true)").refusal, "");
}

TEST_P(BothApis, StreamOptionsAreRead) {
  ResumeFacts facts = read_facts(GetParam(), R"("stream_options":{"include_usage":true})");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_TRUE(facts.wants_usage);
  EXPECT_FALSE(facts.wants_continuous_usage);
  facts = read_facts(
      GetParam(),
      R"("stream_options":{"continuous_usage_stats":true,"include_usage":true,"a":null})");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_TRUE(facts.wants_continuous_usage);
  facts = read_facts(GetParam(), R"("stream_options":{"continuous_usage_stats":true,"b":false})");
  EXPECT_EQ(facts.refusal, "");
  EXPECT_FALSE(facts.wants_continuous_usage);
  EXPECT_EQ(read_facts(GetParam(), R"("stream_options":{"c":true})").refusal,
            "'stream_options.c': a continuation cannot have it");
}

TEST_P(BothApis, AnInvalidValueIsRefused) {
  for (const std::string member : {R"("max_tokens":-1)",
                                   R"("max_tokens":1.5)",
                                   R"("min_tokens":"1")",
                                   R"("ignore_eos":1)",
                                   R"("skip_special_tokens":"no")",
                                   R"("include_stop_str_in_output":0)",
                                   R"("return_token_ids":1)",
                                   R"("stop_token_ids":5)",
                                   R"("stop_token_ids":[-1])",
                                   R"("seed":1.5)",
                                   R"("seed":9223372036854775808)",
                                   R"("seed":"1")",
                                   R"("logit_bias":[])",
                                   R"("logit_bias":{"a":1})",
                                   R"("logit_bias":{"1x":1})",
                                   R"("logit_bias":{"":1})",
                                   R"("logit_bias":{"1":"1"})",
                                   R"("frequency_penalty":"1")",
                                   R"("stream_options":1)",
                                   R"("stream_options":{"include_usage":1})"}) {
    const ResumeFacts facts = read_facts(GetParam(), member, kPenalties);
    EXPECT_NE(facts.refusal.find("': expected "), std::string::npos) << member << facts.refusal;
  }
  EXPECT_NE(completion_facts(R"("logprobs":true)").refusal, "");
}

TEST_P(BothApis, TheOtherFactsOfARefusedRequestAreValid) {
  const ResumeFacts facts = read_facts(
      GetParam(), R"("n":2,"stop":["a"],"stream_options":{"include_usage":true},"top_p":0.5)");
  EXPECT_EQ(facts.refusal, "'n': several choices");
  EXPECT_EQ(facts.stops, std::vector<std::string>{"a"});
  EXPECT_TRUE(facts.wants_usage);
  EXPECT_EQ(facts.repeated, R"("model":"m","top_p":0.5)");
}

TEST(ResumeRules, OnlyATextIsContinuedAsText) {
  constexpr ResumeOptions kText{.text = true};
  EXPECT_EQ(chat_facts("", kText).text_refusal, "");
  for (const char* prompt : {R"("hi")", R"(["hi"])"}) {
    const std::string member = R"("prompt":)" + std::string(prompt);
    EXPECT_EQ(completion_facts(member, kText).text_refusal, "") << prompt;
  }
  for (const char* messages : {"null", "1", R"("hi")", "{}", "[]", R"({"role":"user"})"}) {
    const std::string member = R"("messages":)" + std::string(messages);
    EXPECT_EQ(chat_facts(member, kText).text_refusal, "'messages': expected a list") << messages;
  }
  for (const char* prompt : {"null", "1", "{}", "[]", "[[1]]", R"(["a","b"])", R"(["a",1])"}) {
    const std::string member = R"("prompt":)" + std::string(prompt);
    EXPECT_EQ(completion_facts(member, kText).text_refusal,
              "'prompt': the worker does not report token ids")
        << prompt;
  }
}

TEST(ResumeRules, OtherApisDoNotContinue) {
  for (const Api api : {Api::kResponses, Api::kOther}) {
    EXPECT_EQ(route::read_resume_facts(json::object(), api, {}).refusal,
              "only chats and completions can continue");
  }
}

}  // namespace
}  // namespace fo::test
