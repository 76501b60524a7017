#include "route/answer/other_stream.h"

#include <gtest/gtest.h>

#include <string>

#include "base/strong.h"

namespace fo::test {
namespace {

using route::OtherStream;

std::string typed_event(const std::string& type, const std::string& data) {
  return "event: " + type + "\ndata: " + data + "\n\n";
}

const std::string kCreated =
    typed_event("response.created", R"({"type":"response.created","response":{"id":"resp_7"}})");
const std::string kDelta = typed_event("response.output_text.delta", R"({"delta":"a"})");
const std::string kCompleted =
    typed_event("response.completed", R"({"response":{"id":"resp_7","output":[],)"
                                      R"("usage":{"input_tokens":12,"output_tokens":5}}})");

TEST(OtherStream, ReadsTheUsageAndTheIdOfAResponse) {
  OtherStream stream(base::kKiB);
  EXPECT_EQ(stream.response_id(), "");
  EXPECT_EQ(stream.on_bytes(kCreated).pieces, 0U);
  EXPECT_EQ(stream.response_id(), "resp_7");
  const OtherStream::Progress progress = stream.on_bytes(kDelta + kDelta);
  EXPECT_EQ(progress.events, 2U);
  EXPECT_EQ(progress.pieces, 2U);
  EXPECT_FALSE(stream.usage());
  stream.on_bytes(kCompleted);
  ASSERT_TRUE(stream.usage());
  EXPECT_EQ(stream.usage()->prompt_tokens, 12U);
  EXPECT_EQ(stream.usage()->completion_tokens, 5U);
}

TEST(OtherStream, JoinsTheUsageOfTheEventsOfAMessage) {
  OtherStream stream(base::kKiB);
  stream.on_bytes(
      typed_event("message_start",
                  R"({"message":{"id":"msg_1","usage":{"input_tokens":9,"output_tokens":1}}})"));
  stream.on_bytes(typed_event("content_block_delta", R"({"delta":{"text":"a"}})"));
  stream.on_bytes(typed_event("message_delta", R"({"delta":{},"usage":{"output_tokens":4}})"));
  ASSERT_TRUE(stream.usage());
  EXPECT_EQ(stream.usage()->prompt_tokens, 9U);
  EXPECT_EQ(stream.usage()->completion_tokens, 4U);
  EXPECT_EQ(stream.response_id(), "");
}

TEST(OtherStream, FindsAnIdThatArrivesInPieces) {
  OtherStream stream(base::kKiB);
  for (const char c : kCreated) stream.on_bytes({&c, 1});
  EXPECT_EQ(stream.response_id(), "resp_7");
}

TEST(OtherStream, CommentsAreNoProgress) {
  OtherStream stream(base::kKiB);
  EXPECT_EQ(stream.on_bytes(": ping\n\n").events, 0U);
}

TEST(OtherStream, WhatCannotBeReadIsProgressAllTheSame) {
  OtherStream stream(100);
  EXPECT_EQ(stream.on_bytes("data: " + std::string(200, 'a')).pieces, 1U);
  EXPECT_EQ(stream.on_bytes(kCompleted).events, 1U);
  EXPECT_FALSE(stream.usage());
}

TEST(OtherStream, IgnoresTextAndCountsThatAreNone) {
  OtherStream stream(base::kKiB);
  for (const char* data :
       {R"({"delta":"{\"usage\":{\"output_tokens\":9}}"})", R"({"usage":7})", R"(["usage"])",
        R"({"usage":)", R"({"a":{"usage":{"output_tokens":3}}})"}) {
    EXPECT_EQ(stream.on_bytes(typed_event("message", data)).pieces, 1U);
    EXPECT_FALSE(stream.usage()) << data;
  }
  stream.on_bytes(typed_event("message", R"({"usage":{"output_tokens":18446744073709551615}})"));
  EXPECT_EQ(stream.usage()->completion_tokens, std::uint64_t{1} << 32);
}

}  // namespace
}  // namespace fo::test
