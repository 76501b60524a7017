#include "route/answer/stream_chunk.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::test {
namespace {

using route::read_stream_chunk;
using route::StreamChunk;
using namespace std::string_literals;

std::string delta(const std::string& members) {
  return R"({"choices":[{"index":0,"delta":{)" + members + R"(},"finish_reason":null}]})";
}

TEST(StreamChunk, ContentIsTextReasoningOrACall) {
  for (const std::string& data : {
           delta(R"("content":"a")"),
           // Older versions of vLLM, and SGLang; newer versions of vLLM.
           delta(R"("reasoning_content":"a")"),
           delta(R"("content":null,"reasoning":"a")"),
           delta(R"("refusal":"no")"),
           delta(R"("tool_calls":[{"index":0,"function":{"arguments":"{"}}])"),
           delta(R"("function_call":{"name":"f"})"),
           delta(R"("content":"\u0000")"),
           R"({"choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]})"s,
           R"({"choices":[{"index":0,"text":""},{"index":1,"text":"a"}]})"s,
       }) {
    const StreamChunk chunk = read_stream_chunk(data);
    EXPECT_TRUE(chunk.has_content) << data;
    EXPECT_EQ(chunk.tokens, 1U) << data;
    EXPECT_FALSE(chunk.is_error) << data;
    EXPECT_TRUE(chunk.finishes.empty()) << data;
  }
}

TEST(StreamChunk, ARoleACountOrADetailIsNoContent) {
  for (
      const std::string& data : {
          delta(R"("role":"assistant","content":"")"),
          delta(R"("role":"assistant","content":null,"reasoning_content":null,"tool_calls":null)"),
          delta(R"("tool_calls":[])"),
          delta(R"("hidden_states":[[1.5]])"),
          delta(R"("name":"a","audio":null)"),
          // The details of other things have members of the same names.
          R"({"choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"a"}],"text":"a"}}]})"s,
          R"({"choices":[{"index":0,"text":"","stop_reason":null,"prompt_token_ids":[1,2]}]})"s,
          R"({"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7},"content":"a"})"s,
          R"({"choices":[],"sglext":{"text":"a","choices":[{"text":"a"}]},"prompt_token_ids":[1]})"s,
          R"({"delta":{"content":"a"},"text":"a"})"s,
      }) {
    const StreamChunk chunk = read_stream_chunk(data);
    EXPECT_FALSE(chunk.has_content) << data;
    EXPECT_EQ(chunk.tokens, 0U) << data;
    EXPECT_FALSE(chunk.is_error) << data;
  }
}

TEST(StreamChunk, TokensAreThoseOfAllChoices) {
  EXPECT_EQ(read_stream_chunk(R"({"choices":[{"index":0,"text":"a","token_ids":[1,2]},)"
                              R"({"index":1,"text":"b","token_ids":[3]}]})")
                .tokens,
            3U);
  EXPECT_EQ(read_stream_chunk(R"({"choices":[{"text":"a","token_ids":null}]})").tokens, 1U);
  EXPECT_EQ(
      read_stream_chunk(R"({"choices":[{"text":"","token_ids":[[1,2],{"a":[3]},4]}]})").tokens, 3U);
}

TEST(StreamChunk, AFinishReasonBelongsToItsChoice) {
  // The index may stand on either side of it.
  const StreamChunk chunk =
      read_stream_chunk(R"({"choices":[{"finish_reason":"length","index":2,"stop_reason":null},)"
                        R"({"index":1,"delta":{"content":"a"},"finish_reason":null},)"
                        R"({"finish_reason":"stop","stop_reason":7,"matched_stop":"x","text":""},)"
                        R"({"index":-1,"finish_reason":"abort"}]})");
  ASSERT_EQ(chunk.finishes.size(), 3U);
  EXPECT_EQ(chunk.finishes[0].choice, 2U);
  EXPECT_EQ(chunk.finishes[0].reason, "length");
  EXPECT_EQ(chunk.finishes[1].choice, 0U);
  EXPECT_EQ(chunk.finishes[1].reason, "stop");
  EXPECT_EQ(chunk.finishes[2].choice, 0U);
  EXPECT_EQ(chunk.finishes[2].reason, "abort");
  EXPECT_TRUE(read_stream_chunk(R"({"finish_reason":"stop","choices":[{"finish_reason":""},)"
                                R"({"logprobs":{"finish_reason":"stop"}}]})")
                  .finishes.empty());
}

TEST(StreamChunk, AStatusIsOneOfHttp) {
  const auto status_of_code = [](const std::string& code) {
    return read_stream_chunk(R"({"error":{"code":)" + code + "}}").error_status;
  };
  EXPECT_EQ(status_of_code("400"), 400);
  EXPECT_EQ(status_of_code("\"503\""), 503);
  for (const char* code : {"0", "99", "600", "-400", "400.5", "18446744073709551615", "null",
                           "[400]", "\"context_length_exceeded\"", "\"\"", "1e2"}) {
    EXPECT_EQ(status_of_code(code), std::nullopt) << code;
  }
  EXPECT_EQ(read_stream_chunk(R"({"error":{"status_code":429}})").error_status, 429);
}

TEST(StreamChunk, HalfASurrogatePairIsText) {
  for (const char* text : {R"(\ud83d)", R"(\ude00)", R"(\uD83D\uD83D)", R"(\\\ud83d)", R"(\ud83dx)",
                           R"(\ud83d\u0041)", R"(\ud83d\ude00\ud83d)"}) {
    const std::string data = delta(R"("content":")"s + text + "\"");
    EXPECT_TRUE(read_stream_chunk(data).has_content) << text;
  }
  const StreamChunk error =
      read_stream_chunk(R"({"error":{"message":"\ude00\ud83d\ude00\\ud83d"}})");
  EXPECT_EQ(error.error_message, "\xef\xbf\xbd\xf0\x9f\x98\x80\\ud83d");
}

TEST(StreamChunk, RefusesWhatIsNotAnObject) {
  for (const std::string& data :
       {""s, "[DONE"s, "[]"s, "null"s, "\"text\""s, "{"s, "{}x"s, "{}\0"s, "\0"s, "{\"a\":\xff}"s,
        "{\"a\":\"\xe2\x82\"}"s, R"({"a":"\ud8"})"s, R"({"a":"\ud83d\)"s, R"({"a":"\u"})"s,
        std::string(1'000'000, '['), R"({"a":)" + std::string(1'000'000, '[')}) {
    EXPECT_EQ(status_of([&] { read_stream_chunk(data); }), base::ExitStatus::kBadData)
        << data.substr(0, 50);
  }
}

TEST(StreamChunk, OtherValuesMayBeNested) {
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  const StreamChunk chunk =
      read_stream_chunk(R"({"a":)" + deep + R"(,"choices":[{"text":"a","b":)" + deep +
                        R"(,"token_ids":[)" + deep + "]}]}");
  EXPECT_TRUE(chunk.has_content);
  EXPECT_EQ(chunk.tokens, 1U);
  EXPECT_EQ(chunk.token_ids, std::nullopt);
}

TEST(StreamChunk, NamesTokensAndTheirPlaces) {
  const std::string data =
      R"({"id":"c","prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"content":"a\u00e9"},)"
      R"("logprobs":{"x":1},"finish_reason":null,"token_ids":[7,8]}],"usage":null})";
  const StreamChunk chunk = read_stream_chunk(data);
  EXPECT_EQ(chunk.choices, 1U);
  EXPECT_EQ(chunk.text, "a\u00e9");
  EXPECT_FALSE(chunk.has_other_content);
  EXPECT_EQ(chunk.token_ids, (std::vector<route::TokenId>{7, 8}));
  EXPECT_EQ(chunk.prompt_ids, (std::vector<route::TokenId>{1, 2}));
  EXPECT_EQ(chunk.usage, std::nullopt);
  const auto at = [&](const StreamChunk::Place& place) {
    return data.substr(place.begin, place.end - place.begin);
  };
  EXPECT_EQ(at(chunk.text_at), R"("a\u00e9")");
  EXPECT_EQ(at(chunk.logprobs_at), R"({"x":1})");
  EXPECT_EQ(at(chunk.choices_at).front(), '[');
  EXPECT_EQ(fo::json::edited(data, chunk.id_cuts),
            R"({"id":"c","choices":[{"index":0,"delta":{"content":"a\u00e9"},)"
            R"("logprobs":{"x":1},"finish_reason":null}],"usage":null})");
  EXPECT_EQ(fo::json::edited(data, chunk.usage_cuts), data.substr(0, data.size() - 14) + "}");
}

TEST(StreamChunk, TokensOfAnotherTypeAreNone) {
  for (const char* ids : {"null", "[1,-2]", "[1.5]", "[4294967296]", "{}", "[\"1\"]"}) {
    const StreamChunk chunk =
        read_stream_chunk(R"({"choices":[{"text":"a","token_ids":)"s + ids + "}]}");
    EXPECT_EQ(chunk.token_ids, std::nullopt) << ids;
  }
}

TEST(StreamChunk, ReadsTheUsage) {
  const StreamChunk chunk = read_stream_chunk(
      R"({"choices":[],"usage":{"prompt_tokens":5,"x":{},"completion_tokens":7}})");
  ASSERT_TRUE(chunk.usage);
  EXPECT_EQ(chunk.usage->prompt_tokens, 5U);
  EXPECT_EQ(chunk.usage->completion_tokens, 7U);
}

TEST(StreamChunk, OfDuplicateKeysTheLastOneCounts) {
  const StreamChunk chunk = read_stream_chunk(
      R"({"choices":[{"index":1,"index":2,"finish_reason":"abort","finish_reason":"stop"}]})");
  ASSERT_EQ(chunk.finishes.size(), 1U);
  EXPECT_EQ(chunk.finishes[0].choice, 2U);
  EXPECT_EQ(chunk.finishes[0].reason, "stop");
}

}  // namespace
}  // namespace fo::test
