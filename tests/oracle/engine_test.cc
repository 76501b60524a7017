// The oracle over the wire: its answers, and each knob.
#include "oracle/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "http/client.h"
#include "http/sse.h"
#include "oracle/running_oracle.h"
#include "support/await.h"
#include "support/failure.h"

namespace fo::oracle::test {
namespace {

using base::ExitStatus;
using fo::test::await;
using fo::test::soon;
using fo::test::status_of;
using http::Response;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kText = "/v1/completions";
constexpr const char* kChat = "/v1/chat/completions";
const std::vector<TokenId> kPrompt{kBegin, 'a', 'b'};

json body_of(const json& more = json::object()) {
  json body{{"prompt", kPrompt}, {"max_tokens", 12}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

json chat_of(const json& more = json::object()) {
  json body{{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 12}};
  body["ignore_eos"] = true;
  body.update(more);
  return body;
}

Response post(const RunningOracle& oracle, const std::string& path, const json& body,
              http::Fields headers = {}) {
  http::FetchOptions options;
  options.body = body.dump();
  options.headers = std::move(headers);
  return http::fetch("POST", oracle.url(path), soon(), options);
}

Response get(const RunningOracle& oracle, const std::string& path) {
  return http::fetch("GET", oracle.url(path), soon());
}

struct Streamed {
  std::vector<json> events;
  bool is_done = false;
  bool is_whole = true;
  /// Text of choice 0.
  std::string text;
  std::vector<TokenId> tokens;
  std::string finish;
};

// Reads a stream until it ends or breaks.
Streamed stream(const RunningOracle& oracle, const std::string& path, json body) {
  body["stream"] = true;
  if (!body.contains("return_token_ids")) body["return_token_ids"] = true;
  Streamed got;
  std::string bytes;
  http::FetchOptions options;
  options.body = body.dump();
  options.on_data = [&](std::string_view piece) {
    bytes += piece;
    return true;
  };
  got.is_whole =
      status_of([&] { http::fetch("POST", oracle.url(path), soon(), options); }) == ExitStatus::kOk;
  http::SseReader reader;
  std::string_view rest = bytes;
  while (const auto event = reader.next(rest)) {
    if (event->data == "[DONE]") {
      got.is_done = true;
      continue;
    }
    got.events.push_back(json::parse(event->data));
    for (const json& choice : got.events.back().value("choices", json::array())) {
      if (choice["index"] != 0) continue;
      got.text += path == kText ? choice.value("text", "") : choice["delta"].value("content", "");
      if (choice["finish_reason"].is_string()) got.finish = choice["finish_reason"];
      const json ids = choice.value("token_ids", json());
      for (const json& id : ids) got.tokens.push_back(id);
    }
  }
  return got;
}

std::vector<TokenId> right_answer(std::size_t count, std::vector<TokenId> prompt = kPrompt) {
  ModelState state({});
  state.add(prompt);
  std::vector<TokenId> tokens;
  while (tokens.size() < count) {
    tokens.push_back(state.next({}));
    state.add(tokens.back());
  }
  return tokens;
}

std::vector<TokenId> first(std::size_t count) { return right_answer(count); }

json with(const json& knobs) { return body_of({{"oracle", knobs}}); }

// --- answers
// --------------------------------------------------------------------------------------

TEST(OracleEngine, StreamedOrNotAnAnswerIsTheModels) {
  RunningOracle oracle;
  const std::string text = text_of(right_answer(12), SpecialTokens::kSkipped);
  const Streamed streamed = stream(oracle, kText, body_of());
  EXPECT_EQ(streamed.tokens, right_answer(12));
  EXPECT_EQ(streamed.finish, "length");
  EXPECT_TRUE(streamed.is_done && streamed.is_whole);
  EXPECT_EQ(streamed.events[0]["choices"][0]["prompt_token_ids"], kPrompt);
  const json whole = json::parse(post(oracle, kText, body_of({{"return_token_ids", true}})).body);
  EXPECT_EQ(whole["choices"][0]["text"], streamed.text);
  EXPECT_EQ(whole["choices"][0]["token_ids"], right_answer(12));
  EXPECT_EQ(whole["choices"][0]["prompt_token_ids"], kPrompt);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 12);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3);
}

TEST(OracleEngine, AChatHasItsRoleAndPromptFirst) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kChat, chat_of());
  const json& role = got.events[0];
  EXPECT_EQ(role["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
  const std::vector<TokenId> prompt = role["prompt_token_ids"];
  EXPECT_EQ(got.tokens, right_answer(12, prompt));
  EXPECT_FALSE(got.events[1].contains("prompt_token_ids"));
  const json whole = json::parse(post(oracle, kChat, chat_of({{"return_token_ids", true}})).body);
  EXPECT_EQ(whole["prompt_token_ids"], prompt);
  EXPECT_EQ(whole["choices"][0]["message"], (json{{"role", "assistant"}, {"content", got.text}}));
}

TEST(OracleEngine, UsageIsSentWhereItIsRequested) {
  RunningOracle oracle;
  EXPECT_FALSE(stream(oracle, kText, body_of()).events.back().contains("usage"));
  Streamed got = stream(oracle, kText, body_of({{"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(got.events.back()["choices"], json::array());
  EXPECT_EQ(got.events.back()["usage"]["total_tokens"], 15);
  EXPECT_FALSE(got.events.front().contains("usage"));
  const json options{{"include_usage", true}, {"continuous_usage_stats", true}};
  got = stream(oracle, kText, body_of({{"stream_options", options}}));
  EXPECT_EQ(got.events[4]["usage"]["completion_tokens"], 5);
}

TEST(OracleEngine, SeveralPromptsAndChoicesHaveTheirIndexes) {
  RunningOracle oracle;
  const json body = body_of({{"prompt", {{1}, {2}}}, {"n", 2}, {"return_token_ids", true}});
  const json whole = json::parse(post(oracle, kText, body).body);
  ASSERT_EQ(whole["choices"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["token_ids"],
              right_answer(12, {static_cast<TokenId>(1 + i / 2)}));
  }
  json sampled = body;
  sampled["temperature"] = 1;
  const json other = json::parse(post(oracle, kText, sampled).body);
  EXPECT_NE(other["choices"][0]["token_ids"], other["choices"][1]["token_ids"]);
  EXPECT_EQ(stream(oracle, kText, body).tokens, right_answer(12, {1}));
}

TEST(OracleEngine, EchoAndLogprobsAndStops) {
  RunningOracle oracle;
  const json echoed = json::parse(post(oracle, kText, body_of({{"echo", true}})).body);
  EXPECT_THAT(echoed["choices"][0]["text"].get<std::string>(), testing::StartsWith("ab"));
  const json scored = json::parse(post(oracle, kText, body_of({{"logprobs", 2}})).body);
  const json& lists = scored["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"].size(), 12u);
  EXPECT_EQ(lists["token_logprobs"].size(), 12u);
  EXPECT_EQ(lists["text_offset"][0], 0);
  EXPECT_EQ(lists["top_logprobs"][0].size(), 2u);
  const json chat_body = chat_of({{"logprobs", true}, {"top_logprobs", 3}});
  const json chat = json::parse(post(oracle, kChat, chat_body).body);
  EXPECT_EQ(chat["choices"][0]["logprobs"]["content"][11]["top_logprobs"].size(), 3u);
  const TokenId stop = right_answer(12)[5];
  const json stopped = json::parse(post(oracle, kText, body_of({{"stop_token_ids", {stop}}})).body);
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(stopped["choices"][0]["stop_reason"], stop);
}

TEST(OracleEngine, InvalidRequestsGetOpenAisError) {
  RunningOracle oracle;
  const Response refused = post(oracle, kText, {{"prompt", json::array()}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "prompt");
  EXPECT_EQ(post(oracle, kText, body_of({{"model", "x"}})).status, 404);
  EXPECT_EQ(get(oracle, "/frob").status, 404);
  EXPECT_EQ(get(oracle, kText).status, 405);
}

TEST(OracleEngine, ARequestIdIsReturned) {
  RunningOracle oracle;
  const Response whole = post(oracle, kText, body_of(), {{"X-Request-Id", "r1"}});
  EXPECT_EQ(whole.header("x-request-id"), "r1");
  EXPECT_EQ(json::parse(whole.body)["id"], "cmpl-r1");
  const Response streamed =
      post(oracle, kText, body_of({{"stream", true}}), {{"X-Request-Id", "r2"}});
  EXPECT_EQ(streamed.header("x-request-id"), "r2");
}

TEST(OracleEngine, TokenizesAndDetokenizes) {
  RunningOracle oracle;
  const json tokens = json::parse(post(oracle, "/tokenize", {{"prompt", "the model"}}).body);
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["max_model_len"], 32768);
  const json text = json::parse(post(oracle, "/detokenize", {{"tokens", tokens["tokens"]}}).body);
  EXPECT_EQ(text["prompt"], "<|begin|>the model");
  const json chat = json::parse(post(oracle, "/tokenize", chat_of()).body);
  EXPECT_EQ(chat["tokens"], stream(oracle, kChat, chat_of()).events[0]["prompt_token_ids"]);
  const json named{{"prompt", "a"}, {"add_special_tokens", false}, {"return_token_strs", true}};
  EXPECT_EQ(json::parse(post(oracle, "/tokenize", named).body)["token_strs"], json::array({"a"}));
  EXPECT_EQ(post(oracle, "/detokenize", {{"tokens", {99999}}}).status, 400);
}

TEST(OracleEngine, OtherApisAnswerTheSameEachTime) {
  RunningOracle oracle;
  RunningOracle other;
  const auto same = [&](const char* path, const json& body) {
    const Response one = post(oracle, path, body);
    EXPECT_EQ(one.status, 200) << one.body;
    EXPECT_EQ(one.body, post(other, path, body).body);
    return json::parse(one.body);
  };
  const json vectors = same("/v1/embeddings", {{"input", {"a", "b"}}});
  EXPECT_EQ(vectors["data"].size(), 2u);
  EXPECT_NE(vectors["data"][0]["embedding"], vectors["data"][1]["embedding"]);
  const json base64 = same("/v1/embeddings", {{"input", "a"}, {"encoding_format", "base64"}});
  EXPECT_EQ(base64["data"][0]["embedding"].get<std::string>().size(), 88u);
  const json ranks = same("/v1/rerank", {{"query", "q"}, {"documents", {"a", "b", "c"}}});
  EXPECT_GE(ranks["results"][0]["relevance_score"], ranks["results"][1]["relevance_score"]);
  EXPECT_EQ(same("/v1/score", {{"text_1", "q"}, {"text_2", {"a", "b"}}})["data"].size(), 2u);
}

TEST(OracleEngine, ResponsesAreKnownToTheirEngineAlone) {
  RunningOracle oracle;
  RunningOracle other;
  const json response = json::parse(post(oracle, "/v1/responses", {{"input", "hi"}}).body);
  const std::string path = "/v1/responses/" + response["id"].get<std::string>();
  EXPECT_EQ(json::parse(get(oracle, path).body), response);
  EXPECT_EQ(get(other, path).status, 404);
  const json next{{"input", "more"}, {"previous_response_id", response["id"]}};
  EXPECT_EQ(post(oracle, "/v1/responses", next).status, 200);
  EXPECT_EQ(post(other, "/v1/responses", next).status, 404);
  const Response streamed = post(oracle, "/v1/responses", {{"input", "hi"}, {"stream", true}});
  EXPECT_THAT(streamed.body, HasSubstr("event: response.completed\n"));
  EXPECT_THAT(*streamed.header("content-type"), HasSubstr("text/event-stream"));
}

TEST(OracleEngine, AnthropicsMessages) {
  RunningOracle oracle;
  const json body = chat_of();
  const json message = json::parse(post(oracle, "/v1/messages", body).body);
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["content"][0]["type"], "text");
  EXPECT_EQ(message["usage"]["output_tokens"].get<int>() <= 12, true);
  const Response streamed = post(oracle, "/v1/messages", chat_of({{"stream", true}}));
  EXPECT_THAT(streamed.body, HasSubstr("event: message_stop\ndata: {\"type\":\"message_stop\"}\n"));
}

TEST(OracleEngine, AnswersModelsHealthAndSleep) {
  RunningOracle oracle;
  const json models = json::parse(get(oracle, "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "oracle");
  EXPECT_EQ(models["data"][0]["max_model_len"], 32768);
  EXPECT_EQ(get(oracle, "/health").status, 200);
  EXPECT_EQ(get(oracle, "/ping").status, 200);
  EXPECT_EQ(json::parse(get(oracle, "/version").body)["version"], "0");
  EXPECT_EQ(post(oracle, "/sleep?level=1", json::object()).status, 200);
  EXPECT_EQ(json::parse(get(oracle, "/is_sleeping").body)["is_sleeping"], true);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 503);
  EXPECT_EQ(post(oracle, "/wake_up", json::object()).status, 200);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 200);
}

TEST(OracleEngine, OtherWeightsGiveOtherTokens) {
  EngineOptions options;
  options.model.weights.seed = 1;
  RunningOracle oracle(options);
  EXPECT_NE(stream(oracle, kText, body_of()).tokens, right_answer(12));
}

TEST(OracleEngine, AClientThatDisconnectsEndsItsGeneration) {
  RunningOracle oracle;
  {
    http::test::RawClient client(oracle.port());
    const std::string body = with({{"gap", "1h"}, {"first_token", "0"}}).dump();
    client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    await([&] { return oracle.counts().running == 1; });
    EXPECT_THAT(get(oracle, "/metrics").body,
                HasSubstr("vllm:num_requests_running{model_name=\"oracle\"} 1\n"));
    EXPECT_GT(oracle.counts().kv_tokens, 0u);
  }
  await([&] { return oracle.counts().aborted == 1; });
  const Counts counts = oracle.counts();
  EXPECT_EQ(counts.running, 0u);
  EXPECT_EQ(counts.kv_tokens, 0u);
  EXPECT_THAT(
      get(oracle, "/metrics").body,
      HasSubstr("vllm:request_success_total{model_name=\"oracle\",finished_reason=\"abort\"} 1\n"));
}

// --- knobs
// ----------------------------------------------------------------------------------------

TEST(OracleKnob, IsSetByHeaderBodyOrForAll) {
  RunningOracle oracle;
  EXPECT_EQ(post(oracle, kText, body_of(), {{"X-Oracle-Refuse-Next", "1"}}).status, 503);
  EXPECT_EQ(post(oracle, kText, with({{"refuse_next", 1}})).status, 503);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 200);
  const json knobs = json::parse(post(oracle, "/oracle", {{"refuse_next", 1}}).body);
  EXPECT_EQ(knobs["refuse_next"], 1);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 503);
  EXPECT_EQ(json::parse(get(oracle, "/oracle").body)["refuse_next"], 0);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 200);
  EXPECT_EQ(post(oracle, "/oracle", {{"frob", 1}}).status, 400);
  EXPECT_EQ(post(oracle, kText, with({{"frob", 1}})).status, 400);
  EXPECT_EQ(post(oracle, kText, body_of(), {{"X-Oracle-Frob", "1"}}).status, 400);
}

TEST(OracleKnob, DelaysLastAtLeastAsLongAsTheySay) {
  RunningOracle oracle;
  const auto time_of = [&](const json& knobs) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(stream(oracle, kText, with(knobs)).tokens, right_answer(12));
    return std::chrono::steady_clock::now() - begin;
  };
  EXPECT_GE(time_of({{"first_token", "30ms"}}), std::chrono::milliseconds(30));
  EXPECT_GE(time_of({{"gap", "3ms"}}), std::chrono::milliseconds(33));
  EXPECT_GE(time_of({{"gap", "3ms"}, {"chunk", 4}}), std::chrono::milliseconds(24));
  // Twelve draws of up to 10ms.
  EXPECT_GE(time_of({{"jitter", "10ms"}}), std::chrono::milliseconds(12));
}

TEST(OracleKnob, EventsMayHaveSeveralTokens) {
  RunningOracle oracle;
  Streamed got = stream(oracle, kText, with({{"chunk", 5}}));
  EXPECT_EQ(got.tokens, right_answer(12));
  EXPECT_EQ(got.events.size(), 3u);
  got = stream(oracle, kText, with({{"chunk", 5}, {"random_chunks", true}}));
  EXPECT_EQ(got.tokens, right_answer(12));
  EXPECT_GT(got.events.size(), 3u);
  EXPECT_LT(got.events.size(), 12u);
}

TEST(OracleKnob, EventsMayBeSplit) {
  RunningOracle oracle;
  http::test::RawClient client(oracle.port());
  json body = with({{"write_bytes", 7}});
  body["stream"] = true;
  const std::string text = body.dump();
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
              std::to_string(text.size()) + "\r\n\r\n" + text);
  EXPECT_THAT(client.read_until("\r\n0\r\n\r\n"), HasSubstr("\r\n7\r\ndata: {\r\n7\r\n"));
  EXPECT_EQ(stream(oracle, kText, with({{"write_bytes", 3}})).tokens, right_answer(12));
}

TEST(OracleKnob, LongCharactersMayBeSplitBetweenEvents) {
  RunningOracle oracle;
  json body = body_of({{"max_tokens", 600}, {"stream", true}});
  const std::string whole = post(oracle, kText, body).body;
  body["oracle"] = {{"half_characters", true}};
  std::string split = post(oracle, kText, body).body;
  // Joined, the texts of the events are those of the whole answer.
  const auto text_of_stream = [](const std::string& bytes) {
    std::string text;
    for (std::size_t at = 0; (at = bytes.find(R"("text":")", at)) != std::string::npos;) {
      at += 8;
      text += bytes.substr(at, bytes.find(R"(","logprobs")", at) - at);
    }
    return json::parse('"' + text + '"').get<std::string>();
  };
  EXPECT_THAT(split, HasSubstr("\\ud8"));
  EXPECT_EQ(text_of_stream(split), text_of_stream(whole));
}

TEST(OracleKnob, AnswersMayBePadded) {
  RunningOracle oracle;
  json body = with({{"padding", 100'000}});
  json answer = json::parse(post(oracle, kText, body).body);
  EXPECT_GT(answer["padding"].dump().size(), 99'000u);
  answer.erase("padding");
  EXPECT_EQ(answer["choices"], json::parse(post(oracle, kText, with({})).body)["choices"]);
  const Streamed got = stream(oracle, kText, body);
  EXPECT_EQ(got.tokens, right_answer(12));
  EXPECT_TRUE(got.events.at(0).contains("padding"));
  EXPECT_FALSE(got.events.at(1).contains("padding"));
}

TEST(OracleKnob, AResetCutsAStreamAfterItsTokens) {
  RunningOracle oracle;
  for (const char* kind : {"reset", "cut"}) {
    const Streamed got = stream(oracle, kText, with({{"fail", std::string(kind) + "@5"}}));
    EXPECT_FALSE(got.is_whole) << kind;
    EXPECT_FALSE(got.is_done) << kind;
    EXPECT_EQ(got.finish, "");
    EXPECT_LE(got.tokens.size(), 5u);
    EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), first(5).begin()));
  }
  // Without a reset the client reads what was sent before.
  EXPECT_EQ(stream(oracle, kText, with({{"fail", "cut@5"}})).tokens, first(5));
  EXPECT_EQ(oracle.counts().faults, 3u);
}

TEST(OracleKnob, HalfAnEventIsNotRead) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"fail", "half@5"}}));
  EXPECT_FALSE(got.is_whole);
  EXPECT_EQ(got.tokens, first(5));
}

TEST(OracleKnob, AnEndWithoutAFinishIsProperHttp) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"fail", "end@5"}}));
  EXPECT_TRUE(got.is_whole);
  EXPECT_FALSE(got.is_done);
  EXPECT_EQ(got.finish, "");
  EXPECT_EQ(got.tokens, first(5));
  // Between the last token and its finish.
  EXPECT_EQ(stream(oracle, kText, with({{"fail", "end@12"}})).tokens, right_answer(12));
  EXPECT_EQ(stream(oracle, kText, with({{"fail", "end@12"}})).finish, "");
  EXPECT_EQ(stream(oracle, kText, with({{"fail", "end@13"}})).finish, "length");
}

TEST(OracleKnob, AnErrorTakesThePlaceOfTheRest) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"fail", "error@5"}}));
  EXPECT_TRUE(got.is_done);
  EXPECT_EQ(got.tokens, first(5));
  EXPECT_EQ(got.events.back()["error"]["code"], 500);
  EXPECT_EQ(post(oracle, kText, with({{"fail", "error@5"}})).status, 500);
}

TEST(OracleKnob, AnAbortIsAFinish) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"fail", "abort@5"}}));
  EXPECT_TRUE(got.is_done);
  EXPECT_EQ(got.finish, "abort");
  EXPECT_EQ(got.tokens, first(5));
  const json whole = json::parse(post(oracle, kText, with({{"fail", "abort@5"}})).body);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "abort");
}

TEST(OracleKnob, AStallLastsUntilItsClientDisconnects) {
  RunningOracle oracle;
  std::atomic<std::size_t> events = 0;
  std::promise<void> leave;
  auto client = std::async(std::launch::async, [&] {
    http::test::RawClient raw(oracle.port());
    json body = with({{"fail", "stall@5"}});
    body["stream"] = true;
    const std::string text = body.dump();
    raw.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
             std::to_string(text.size()) + "\r\n\r\n" + text);
    for (; events < 5; ++events) raw.read_until("\n\n");
    leave.get_future().wait();
  });
  await([&] { return events == 5 && oracle.counts().faults == 1; });
  EXPECT_EQ(oracle.counts().running, 1u);
  EXPECT_EQ(oracle.counts().generation_tokens, 5u);
  leave.set_value();
  client.get();
  await([&] { return oracle.counts().aborted == 1; });
}

TEST(OracleKnob, AnEngineEndsAlthoughARequestStalls) {
  std::optional<http::test::RawClient> client;
  {
    RunningOracle oracle;
    const std::string body = with({{"fail", "stall@0"}}).dump();
    client.emplace(oracle.port());
    client->send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
    await([&] { return oracle.counts().faults == 1; });
  }
  EXPECT_EQ(client->read_to_end(), "");
}

TEST(OracleKnob, AnEngineThatEndsRefusesConnections) {
  for (const char* fault : {"kill@5", "exit@start"}) {
    RunningOracle oracle;
    EXPECT_FALSE(stream(oracle, kText, with({{"fail", fault}})).is_whole);
    EXPECT_EQ(status_of([&] { get(oracle, "/health"); }), ExitStatus::kUnavailable);
  }
}

TEST(OracleKnob, WrongTokensFollowRightOnes) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"fail", "wrong@6"}}));
  EXPECT_EQ(got.finish, "length");
  EXPECT_NE(got.tokens, right_answer(12));
  EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.begin() + 6, right_answer(12).begin()));
}

TEST(OracleKnob, AFaultAtTheStartIsBeforeTheHead) {
  RunningOracle oracle;
  EXPECT_EQ(post(oracle, kText, with({{"fail", "error@start"}})).status, 500);
  for (const char* fault : {"reset@start", "cut@start", "half@start", "end@start"}) {
    json body = with({{"fail", fault}});
    for (const bool streamed : {false, true}) {
      body["stream"] = streamed;
      EXPECT_EQ(status_of([&] { post(oracle, kText, body); }), ExitStatus::kUnavailable) << fault;
    }
  }
  // At token 0 a stream has a head.
  EXPECT_EQ(stream(oracle, kText, with({{"fail", "end@0"}})).is_whole, true);
}

TEST(OracleKnob, AnswersInOnePieceFailAsAWhole) {
  RunningOracle oracle;
  for (const char* fault : {"reset@5", "cut@5", "half@5", "end@5"}) {
    EXPECT_EQ(status_of([&] {
                post(oracle, kText, with({{"fail", fault}}));
              }),
              ExitStatus::kUnavailable)
        << fault;
  }
}

TEST(OracleKnob, OnlySomeRequestsFail) {
  Knobs knobs{.fail = parse_fault("error@start"), .fail_every = 3};
  RunningOracle oracle;
  oracle.set(knobs);
  std::vector<int> statuses;
  for (int i = 0; i < 6; ++i) statuses.push_back(post(oracle, kText, body_of()).status);
  EXPECT_THAT(statuses, ElementsAre(200, 200, 500, 200, 200, 500));
  knobs.fail_every = 1;
  knobs.fail_next = 2;
  oracle.set(knobs);
  statuses.clear();
  for (int i = 0; i < 4; ++i) statuses.push_back(post(oracle, kText, body_of()).status);
  EXPECT_THAT(statuses, ElementsAre(500, 500, 200, 200));
}

TEST(OracleKnob, APlaceIsDrawnFromItsRange) {
  RunningOracle oracle;
  std::vector<std::size_t> seen;
  for (int i = 0; i < 12; ++i) {
    seen.push_back(stream(oracle, kText, with({{"fail", "end@2-9"}})).tokens.size());
  }
  EXPECT_GE(*std::ranges::min_element(seen), 2u);
  EXPECT_LE(*std::ranges::max_element(seen), 9u);
  EXPECT_NE(*std::ranges::min_element(seen), *std::ranges::max_element(seen));
}

TEST(OracleKnob, RefusesWithAStatusAndATime) {
  const Knobs knobs{
      .refuse_status = 429, .refuse_every = 2, .retry_after = std::chrono::milliseconds(1500)};
  RunningOracle oracle;
  oracle.set(knobs);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 200);
  const Response refused = post(oracle, kText, body_of());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.header("retry-after"), "2");
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], 429);
  EXPECT_EQ(oracle.counts().refused, 1u);
}

TEST(OracleKnob, RequestsWaitForASlotOrAreRefused) {
  const Knobs knobs{.slots = 1, .waiting = 1, .busy_status = 429};
  RunningOracle oracle;
  oracle.set(knobs);
  http::test::RawClient stalled(oracle.port());
  const std::string body = with({{"fail", "stall@0"}}).dump();
  stalled.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  await([&] { return oracle.counts().running == 1; });
  auto waits =
      std::async(std::launch::async, [&] { return post(oracle, kText, body_of()).status; });
  await([&] { return oracle.counts().waiting == 1; });
  EXPECT_EQ(post(oracle, kText, body_of()).status, 429);
  EXPECT_THAT(get(oracle, "/metrics").body,
              HasSubstr("requests_waiting{model_name=\"oracle\"} 1\n"));
  stalled.finish();
  EXPECT_EQ(waits.get(), 200);
}

TEST(OracleKnob, HealthMayLie) {
  RunningOracle oracle;
  Knobs knobs{.health = "no"};
  oracle.set(knobs);
  EXPECT_EQ(get(oracle, "/health").status, 503);
  EXPECT_EQ(post(oracle, kText, body_of()).status, 200);
  knobs.health = "stall";
  oracle.set(knobs);
  const base::Deadline moment = base::Deadline::after(std::chrono::milliseconds(20));
  EXPECT_EQ(status_of([&] { http::fetch("GET", oracle.url("/health"), moment); }),
            ExitStatus::kTryAgain);
}

TEST(OracleKnob, TokenIdsMayBeMissing) {
  RunningOracle oracle;
  const Streamed got = stream(oracle, kText, with({{"token_ids", "ignored"}}));
  EXPECT_EQ(got.tokens.size(), 0u);
  EXPECT_EQ(got.finish, "length");
  json body = with({{"token_ids", "refused"}});
  EXPECT_EQ(post(oracle, kText, body).status, 200);
  body["return_token_ids"] = true;
  EXPECT_EQ(post(oracle, kText, body).status, 400);
}

TEST(OracleKnob, ReasoningComesBeforeTheContent) {
  RunningOracle oracle;
  json body = chat_of({{"oracle", {{"reasoning", true}}}, {"max_tokens", 40}});
  const Streamed got = stream(oracle, kChat, body);
  const auto end = std::ranges::find(got.tokens, kEndThink);
  EXPECT_EQ(end - got.tokens.begin(), 16);
  std::string reasoning;
  for (const json& event : got.events) {
    reasoning += event["choices"][0]["delta"].value("reasoning_content", "");
  }
  EXPECT_NE(reasoning, "");
  EXPECT_EQ(reasoning + got.text, text_of(got.tokens, SpecialTokens::kSkipped));
  const json message = json::parse(post(oracle, kChat, body).body)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], reasoning);
  EXPECT_EQ(message["content"], got.text);
}

TEST(OracleKnob, AChatWithToolsCallsTheFirst) {
  RunningOracle oracle;
  const json tools = {{{"type", "function"}, {"function", {{"name", "search"}}}}};
  json body = chat_of({{"tools", tools}, {"max_tokens", 2000}, {"ignore_eos", false}});
  body["oracle"] = {{"tool_calls", true}};
  const Streamed got = stream(oracle, kChat, body);
  std::string arguments;
  std::size_t names = 0;
  for (const json& event : got.events) {
    const json calls = event["choices"][0]["delta"].value("tool_calls", json::array());
    for (const json& call : calls) {
      if (call["function"].contains("name")) ++names;
      arguments += call["function"]["arguments"];
    }
  }
  EXPECT_EQ(got.finish, "tool_calls");
  EXPECT_EQ(names, 1u);
  EXPECT_EQ(json::parse(arguments)["text"], text_of(got.tokens, SpecialTokens::kSkipped));
  const json choice = json::parse(post(oracle, kChat, body).body)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], arguments);
  body["tool_choice"] = "none";
  EXPECT_EQ(stream(oracle, kChat, body).finish, "stop");
}

}  // namespace
}  // namespace fo::oracle::test
