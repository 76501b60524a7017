#include "canary/check/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "json/object.h"

namespace fo::canary {
namespace {

using testing::ElementsAre;

// The message of add() for this event and a reader of 4 tokens; empty if it accepts the event.
std::string misfit_of(const std::string& data, bool has_logprobs = true) {
  AnswerReader reader(4, has_logprobs);
  try {
    reader.add(data);
  } catch (const fo::json::Misfit& misfit) {
    EXPECT_TRUE(reader.answer().tokens.empty()) << data;
    EXPECT_FALSE(reader.is_done()) << data;
    return misfit.what();
  }
  return {};
}

std::string event_of(const std::string& members) { return R"({"choices":[{)" + members + "}]}"; }

// An event with one token whose log-probability and best tokens are these.
std::string event_with(const std::string& logprob, const std::string& best) {
  return event_of(R"("text":"a","token_ids":[7],"logprobs":{"token_logprobs":[)" + logprob +
                  R"(],"top_logprobs":[)" + best + "]}");
}

TEST(AnswerReader, JoinsTheTokensOfItsEvents) {
  AnswerReader reader(4, true);
  reader.add(event_of(R"("text":"a","prompt_token_ids":[1,2,4294967295],"token_ids":[7,8],
                        "logprobs":{"token_logprobs":[-0.5,-0.25],
                                    "top_logprobs":[{"a":-0.5,"b":-2},{}]})"));
  // Events without a choice report the use of tokens.
  reader.add(R"({"choices":[],"usage":{"prompt_tokens":3}})");
  EXPECT_FALSE(reader.is_done());
  reader.add(event_of(R"("text":"","token_ids":[9],"finish_reason":"length",
                        "logprobs":{"token_logprobs":[-1],"top_logprobs":[{"c":-1}]})"));
  EXPECT_TRUE(reader.is_done());
  const Answer& answer = reader.answer();
  EXPECT_THAT(answer.prompt, ElementsAre(1U, 2U, std::numeric_limits<TokenId>::max()));
  EXPECT_THAT(answer.ids(), ElementsAre(7U, 8U, 9U));
  EXPECT_EQ(answer.tokens[0].logprob, -0.5);
  EXPECT_EQ(answer.tokens[0].top.at("b"), -2);
  EXPECT_TRUE(answer.tokens[1].top.empty());
  EXPECT_EQ(answer.tokens[2].logprob, -1);
  EXPECT_TRUE(answer.is_complete());
}

TEST(AnswerReader, ReadsNothingAfterTheEnd) {
  AnswerReader reader(4, false);
  reader.add(event_of(R"("text":"a","token_ids":[7],"finish_reason":"stop")"));
  reader.add(event_of(R"("text":"a","token_ids":[8])"));
  reader.add("{");
  EXPECT_THAT(reader.answer().ids(), ElementsAre(7U));
}

TEST(AnswerReader, OnlyTheEngineCompletesAnAnswer) {
  AnswerReader ended(4, false);
  ended.add("[DONE]");
  EXPECT_TRUE(ended.is_done());
  EXPECT_FALSE(ended.answer().is_complete());
  for (const char* const reason : {"", "abort", "Stop"}) {
    AnswerReader reader(4, false);
    reader.add(event_of(R"("token_ids":[7],"finish_reason":")" + std::string(reason) + '"'));
    EXPECT_TRUE(reader.is_done());
    EXPECT_FALSE(reader.answer().is_complete()) << reason;
  }
}

TEST(AnswerReader, RefusesEachTruncationOfAnEvent) {
  const std::string whole = event_with("-0.5", R"({"\u00e9":-0.5})");
  ASSERT_EQ(misfit_of(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(misfit_of(whole.substr(0, size)), "not JSON") << size;
  }
}

TEST(AnswerReader, RefusesWhatIsNoEvent) {
  EXPECT_EQ(misfit_of("[]"), "expected an object");
  EXPECT_EQ(misfit_of("{}"), "an event without choices");
  EXPECT_EQ(misfit_of(R"({"choices":null})"), "an event without choices");
  EXPECT_EQ(misfit_of(R"({"choices":{"0":{}}})"), "an event without choices");
  EXPECT_EQ(misfit_of("\xff"), "not JSON");
  EXPECT_EQ(misfit_of(event_of(R"("text":")" + std::string(1024 * 1024, 'a') + '"')), "too long");
  EXPECT_EQ(misfit_of(std::string(100'000, '[')), "nested too deep");
}

TEST(AnswerReader, RefusesWhatIsNoTokenId) {
  EXPECT_EQ(misfit_of(event_of(R"("token_ids":7)")), "token_ids: expected a list");
  for (const char* const id : {"-1", "1.0", "\"7\"", "null", "[7]", "4294967296", "1e30"}) {
    const std::string list = "[" + std::string(id) + "]";
    EXPECT_EQ(misfit_of(event_of(R"("token_ids":)" + list)), "token_ids: not a token id") << id;
    EXPECT_EQ(misfit_of(event_of(R"("prompt_token_ids":)" + list)),
              "prompt_token_ids: not a token id");
  }
}

TEST(AnswerReader, RefusesWhatIsNoLogProbability) {
  // JSON has no NaN, and 1e999 is not a number of the parser either.
  for (const char* const value : {"NaN", "-Infinity", "1e999", "-1e999"}) {
    EXPECT_EQ(misfit_of(event_with(value, "{}")), "not JSON") << value;
  }
  for (const char* const value : {"null", "\"-0.5\"", "{}", "true"}) {
    EXPECT_EQ(misfit_of(event_with(value, "{}")), "a log-probability is not a number") << value;
    EXPECT_EQ(misfit_of(event_with("-1", R"({"a":)" + std::string(value) + "}")),
              "a log-probability is not a number")
        << value;
  }
  EXPECT_EQ(misfit_of(event_with("-1", "null")), "top_logprobs: not an object of at most 20");
  EXPECT_EQ(misfit_of(event_with("-1", "[]")), "top_logprobs: not an object of at most 20");
}

TEST(AnswerReader, RefusesTokensWithoutTheirLogProbabilities) {
  const std::string without = event_of(R"("token_ids":[7])");
  EXPECT_EQ(misfit_of(without), "the answer has tokens without token_logprobs");
  EXPECT_EQ(misfit_of(without, false), "");
  EXPECT_EQ(misfit_of(event_of(R"("token_ids":[7],"logprobs":{"token_logprobs":[-1]})")),
            "the answer has tokens without top_logprobs");
  EXPECT_EQ(misfit_of(event_with("-1, -2", "{}")), "the answer has tokens without token_logprobs");
  EXPECT_EQ(misfit_of(event_with("-1", "")), "the answer has tokens without top_logprobs");
  EXPECT_EQ(misfit_of(event_of(R"("token_ids":[7],"logprobs":[])")),
            "the answer has tokens without token_logprobs");
}

TEST(AnswerReader, LimitsTheTopTokens) {
  std::string top = R"("0":-1)";
  for (std::size_t i = 1; i < kMaxTopTokens; ++i) top += ",\"" + std::to_string(i) + "\":-1";
  EXPECT_EQ(misfit_of(event_with("-1", "{" + top + "}")), "");
  EXPECT_EQ(misfit_of(event_with("-1", "{" + top + R"(,"a":-1})")),
            "top_logprobs: not an object of at most 20");
}

TEST(AnswerReader, RefusesATextWhoseTokensAreNotNamed) {
  const std::string reason = "the engine does not report token ids";
  EXPECT_EQ(misfit_of(event_of(R"("text":"a")")), reason);
  EXPECT_EQ(misfit_of(event_of(R"("text":"a","token_ids":null)")), reason);
  EXPECT_EQ(misfit_of(event_of(R"("finish_reason":"stop")")), reason);
  // The first event of some engines has no text yet.
  EXPECT_EQ(misfit_of(event_of(R"("text":"")")), "");
}

TEST(AnswerReader, LimitsTheAnswerAndThePrompt) {
  EXPECT_EQ(misfit_of(event_of(R"("token_ids":[1,2,3,4])"), false), "");
  EXPECT_EQ(misfit_of(event_of(R"("token_ids":[1,2,3,4,5])"), false),
            "the answer has more tokens than requested");
  AnswerReader reader(4, false);
  reader.add(event_of(R"("token_ids":[1,2,3])"));
  EXPECT_THROW(reader.add(event_of(R"("token_ids":[4,5])")), fo::json::Misfit);
  EXPECT_THAT(reader.answer().ids(), ElementsAre(1U, 2U, 3U));
  std::string prompt = "0";
  for (std::size_t i = 1; i < kMaxPromptTokens; ++i) prompt += ",0";
  EXPECT_EQ(misfit_of(event_of(R"("prompt_token_ids":[)" + prompt + "]")), "");
  EXPECT_EQ(misfit_of(event_of(R"("prompt_token_ids":[)" + prompt + ",0]")),
            "the prompt is too long");
}

TEST(AnswerReader, AnErrorHasTheEnginesMessage) {
  EXPECT_EQ(misfit_of(R"({"error":{"message":"out of\nmemory","code":500}})"),
            "the engine reports an error: out of memory");
  EXPECT_EQ(misfit_of(R"({"error":"busy"})"), "the engine reports an error: busy");
}

TEST(ErrorMessage, IsFoundWhereEnginesPutIt) {
  EXPECT_EQ(error_message_of(R"({"error":{"message":"a"}})"), "a");
  EXPECT_EQ(error_message_of(R"({"object":"error","message":"b"})"), "b");
  EXPECT_EQ(error_message_of(R"({"error":"c"})"), "c");
  for (const char* const text : {"", "{", "[]", "busy", R"({"error":5})", R"({"message":{}})"}) {
    EXPECT_EQ(error_message_of(text), "") << text;
  }
  EXPECT_LE(error_message_of(R"({"error":")" + std::string(10'000, 'a') + "\"}").size(), 210U);
}

}  // namespace
}  // namespace fo::canary
