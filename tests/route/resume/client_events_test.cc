#include "route/resume/client_events.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "http/sse.h"

namespace fo::test {
namespace {

using route::Api;
using route::ClientEvents;
using route::read_stream_chunk;
using route::ResumeFacts;

ResumeFacts wants(bool ids, bool usage, bool continuous = false) {
  ResumeFacts facts;
  facts.wants_ids = ids;
  facts.wants_usage = usage;
  facts.wants_continuous_usage = continuous;
  return facts;
}

const std::string kChatEvent =
    R"({"id":"x","choices":[{"index":0,"delta":{"content":"a\u0062"},"token_ids":[7, 8]}],)"
    R"("prompt_token_ids":[1],"usage":{"prompt_tokens":1},"model":"m"})";

std::string forwarded(const std::string& data, const ResumeFacts& facts,
                      const std::optional<std::string>& text = std::nullopt) {
  return ClientEvents(Api::kChat, facts).forwarded(data, read_stream_chunk(data), text);
}

TEST(ClientEvents, WhatTheClientDidNotAskForIsTakenOut) {
  EXPECT_EQ(forwarded(kChatEvent, wants(true, true, true)), http::format_sse(kChatEvent));
  EXPECT_EQ(forwarded(kChatEvent, wants(true, false)),
            http::format_sse(R"({"id":"x","choices":[{"index":0,"delta":{"content":"a\u0062"},)"
                             R"("token_ids":[7, 8]}],"prompt_token_ids":[1],"model":"m"})"));
  EXPECT_EQ(forwarded(kChatEvent, wants(false, true, true)),
            http::format_sse(R"({"id":"x","choices":[{"index":0,"delta":{"content":"a\u0062"}}],)"
                             R"("usage":{"prompt_tokens":1},"model":"m"})"));
  // With each event only for a client that asks for it.
  for (const bool wants_usage : {false, true}) {
    EXPECT_EQ(
        forwarded(kChatEvent, wants(false, wants_usage)),
        http::format_sse(
            R"({"id":"x","choices":[{"index":0,"delta":{"content":"a\u0062"}}],"model":"m"})"));
  }
  // Null is there for the router, too.
  EXPECT_EQ(forwarded(R"({"choices":[{"text":"a","token_ids":null,"prompt_token_ids":null}],)"
                      R"("usage":null})",
                      wants(false, false)),
            http::format_sse(R"({"choices":[{"text":"a"}]})"));
}

TEST(ClientEvents, TextMayBeReplaced) {
  EXPECT_EQ(
      forwarded(kChatEvent, wants(false, false), "\"é\xED\xA0\xBD"),
      http::format_sse(
          R"({"id":"x","choices":[{"index":0,"delta":{"content":"\"é\ud83d"}}],"model":"m"})"));
  // An event without a text has no place for one.
  const std::string role = R"({"choices":[{"delta":{"role":"assistant"}}]})";
  EXPECT_EQ(forwarded(role, wants(false, false), "text"), http::format_sse(role));
}

TEST(ClientEvents, MadeEventsLookLikeTheFirstOne) {
  const ResumeFacts plain = wants(false, false);
  ClientEvents events(Api::kChat, plain);
  EXPECT_FALSE(events.has_learned());
  events.learn(kChatEvent, read_stream_chunk(kChatEvent));
  EXPECT_EQ(events.made({.text = "b\n"}, std::nullopt),
            http::format_sse(
                R"({"id":"x","choices":[{"index":0,"delta":{"content":"b\u000a"},"logprobs":null,)"
                R"("finish_reason":null,"stop_reason":null}],"model":"m"})"));
  EXPECT_EQ(events.made({.text = "", .finish = "\"stop\"", .stop_reason = "7"}, std::nullopt),
            http::format_sse(R"({"id":"x","choices":[{"index":0,"delta":{},"logprobs":null,)"
                             R"("finish_reason":"stop","stop_reason":7}],"model":"m"})"));
  events.forget();
  EXPECT_FALSE(events.has_learned());
}

TEST(ClientEvents, MadeEventsHaveWhatTheClientAskedFor) {
  const ResumeFacts all = wants(true, true, true);
  ClientEvents events(Api::kCompletions, all);
  const std::string first = R"({"usage":{},"choices":[{"text":"a"}],"id":"x"})";
  events.learn(first, read_stream_chunk(first));
  const route::Usage usage{.prompt_tokens = 5, .completion_tokens = 2};
  EXPECT_EQ(events.made({.text = "b", .ids = {8, 9}, .logprobs = R"({"tokens":["b"]})"}, usage),
            http::format_sse(
                R"({"choices":[{"index":0,"text":"b","logprobs":{"tokens":["b"]},)"
                R"("finish_reason":null,"stop_reason":null,"token_ids":[8,9]}],)"
                R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7},"id":"x"})"));
  EXPECT_EQ(events.made_usage(usage),
            http::format_sse(
                R"({"choices":[],)"
                R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7},"id":"x"})"));
  // A usage that is not known is left out.
  EXPECT_EQ(
      events.made({.text = "b"}, std::nullopt),
      http::format_sse(R"({"choices":[{"index":0,"text":"b","logprobs":null,"finish_reason":null,)"
                       R"("stop_reason":null,"token_ids":[]}],"id":"x"})"));
}

}  // namespace
}  // namespace fo::test
