#include "refengine/api/completion_answer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fo::refengine {
namespace {

using nlohmann::json;

AnswerToken token_of(TokenId token, std::size_t offset = 0) {
  return {{{token, -0.5f}, {{'x', -0.25f}, {token, -0.5f}}}, offset};
}

Generation generation_of(const std::vector<TokenId>& output) {
  const ModelConfig config{.vocab_size = 1000, .bos = {}, .eos = {}};
  GenerationOptions options;
  options.max_tokens = output.size();
  Generation generation(config, {256, 'a'}, options, 10);
  for (const TokenId token : output) generation.accept({{}, token_of(token).choice});
  return generation;
}

AnswerHead head_of(Endpoint endpoint) {
  return {.endpoint = endpoint, .id = "id-1", .model = "m", .created = 99};
}

AnswerPiece piece_of(std::string text, const std::vector<TokenId>& tokens, std::string finish) {
  AnswerPiece piece;
  piece.text = std::move(text);
  for (const TokenId token : tokens) piece.tokens.push_back(token_of(token, piece.tokens.size()));
  piece.finish = std::move(finish);
  return piece;
}

json chunk_json(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: {"));
  EXPECT_TRUE(event.ends_with("}\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
  return json::parse(event.substr(6));
}

TEST(CompletionAnswer, TextHasTokensAndCounts) {
  const std::vector<TokenId> tokens{104, 0xC3, 0xA9};
  const std::string answer = format_answer(head_of(Endpoint::kCompletions),
                                           piece_of("hé", tokens, "length"), generation_of(tokens));
  EXPECT_EQ(answer, R"({"id":"id-1","object":"text_completion","created":99,"model":"m","choices":)"
                    R"([{"index":0,"text":"hé","logprobs":null,"finish_reason":"length",)"
                    R"("stop_reason":null,"token_ids":[104,195,169]}],)"
                    R"("usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}})");
}

TEST(CompletionAnswer, ChatIsAMessage) {
  const std::vector<TokenId> tokens{'h', 'i'};
  const std::string answer = format_answer(head_of(Endpoint::kChat), piece_of("hi", tokens, "stop"),
                                           generation_of(tokens));
  EXPECT_EQ(answer, R"({"id":"id-1","object":"chat.completion","created":99,"model":"m","choices":)"
                    R"([{"index":0,"message":{"role":"assistant","content":"hi"},"logprobs":null,)"
                    R"("finish_reason":"stop","stop_reason":null}],)"
                    R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}})");
}

TEST(CompletionAnswer, TokenIdsAreWhereVllmHasThem) {
  AnswerHead head = head_of(Endpoint::kCompletions);
  head.return_token_ids = true;
  AnswerPiece piece = piece_of("h", {'h'}, "length");
  piece.is_first = true;
  const Generation generation = generation_of({'h'});
  json answer = json::parse(format_answer(head, piece, generation));
  EXPECT_EQ(answer["choices"][0]["prompt_token_ids"], json({256, 'a'}));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json({'h'}));
  const json first = chunk_json(format_chunk(head, piece, generation));
  EXPECT_EQ(first["choices"][0]["prompt_token_ids"], json({256, 'a'}));
  EXPECT_EQ(first["choices"][0]["token_ids"], json({'h'}));
  piece.is_first = false;
  const json next = chunk_json(format_chunk(head, piece, generation));
  EXPECT_FALSE(next["choices"][0].contains("prompt_token_ids"));
  head.endpoint = Endpoint::kChat;
  answer = json::parse(format_answer(head, piece, generation));
  EXPECT_EQ(answer["prompt_token_ids"], json({256, 'a'}));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json({'h'}));
  const json role = chunk_json(format_role_chunk(head, generation));
  EXPECT_EQ(role["prompt_token_ids"], json({256, 'a'}));
  EXPECT_FALSE(role["choices"][0].contains("token_ids"));
  EXPECT_EQ(chunk_json(format_chunk(head, piece, generation))["choices"][0]["token_ids"],
            json({'h'}));
}

TEST(CompletionAnswer, ChunksOfTextAreServerSentEvents) {
  const AnswerHead head = head_of(Endpoint::kCompletions);
  const Generation generation = generation_of({1, 2, 3});
  const json chunk = chunk_json(format_chunk(head, piece_of("h\n", {104}, ""), generation));
  EXPECT_EQ(chunk["object"], "text_completion");
  EXPECT_EQ(chunk["choices"][0]["text"], "h\n");
  EXPECT_EQ(chunk["choices"][0]["token_ids"], json({104}));
  EXPECT_TRUE(chunk["choices"][0]["finish_reason"].is_null());
  EXPECT_FALSE(chunk.contains("usage"));
  const json last = chunk_json(format_chunk(head, piece_of("", {}, "stop"), generation));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  const json usage = chunk_json(format_usage_chunk(head, generation));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["total_tokens"], 5);
}

TEST(CompletionAnswer, ChunksOfChatAreDeltas) {
  const AnswerHead head = head_of(Endpoint::kChat);
  const Generation generation = generation_of({});
  const json first = chunk_json(format_role_chunk(head, generation));
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"], json({{"role", "assistant"}, {"content", ""}}));
  EXPECT_FALSE(first.contains("prompt_token_ids"));
  const json next = chunk_json(format_chunk(head, piece_of("hi", {'i'}, ""), generation));
  EXPECT_EQ(next["choices"][0]["delta"], json({{"content", "hi"}}));
  EXPECT_FALSE(next["choices"][0].contains("token_ids"));
  EXPECT_TRUE(next["choices"][0]["finish_reason"].is_null());
  const json last = chunk_json(format_chunk(head, piece_of("!", {'!'}, "length"), generation));
  EXPECT_EQ(last["choices"][0]["delta"], json({{"content", "!"}}));
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
}

TEST(CompletionAnswer, EachChunkHasTheCountsIfRequested) {
  AnswerHead head = head_of(Endpoint::kChat);
  head.continuous_usage = true;
  EXPECT_EQ(chunk_json(format_role_chunk(head, generation_of({})))["usage"],
            json::parse(R"({"prompt_tokens":2,"completion_tokens":0,"total_tokens":2})"));
  const json chunk =
      chunk_json(format_chunk(head, piece_of("hi", {'i'}, ""), generation_of({1, 2, 3})));
  EXPECT_EQ(chunk["usage"]["completion_tokens"], 3);
}

TEST(CompletionAnswer, TheCountsHaveTheCachedTokensIfRequested) {
  AnswerHead head = head_of(Endpoint::kCompletions);
  head.cached_tokens = true;
  Generation generation = generation_of({});
  generation.skip(1);
  EXPECT_EQ(chunk_json(format_usage_chunk(head, generation))["usage"]["prompt_tokens_details"],
            json({{"cached_tokens", 1}}));
}

TEST(CompletionAnswer, TheStopReasonIsATokenOrAString) {
  AnswerPiece piece = piece_of("", {}, "stop");
  const auto reason_of = [&](Endpoint endpoint) {
    return chunk_json(
        format_chunk(head_of(endpoint), piece, generation_of({})))["choices"][0]["stop_reason"];
  };
  EXPECT_TRUE(reason_of(Endpoint::kChat).is_null());
  piece.stop_reason = TokenId{7};
  EXPECT_EQ(reason_of(Endpoint::kCompletions), 7);
  piece.stop_reason = std::string("END");
  EXPECT_EQ(reason_of(Endpoint::kChat), "END");
}

TEST(CompletionAnswer, AnEchoHasTheLogprobsOfThePromptInFront) {
  AnswerHead head = head_of(Endpoint::kCompletions);
  head.logprobs = true;
  AnswerPiece piece = piece_of("ah", {}, "length");
  piece.echoed = {token_of(256), token_of('a', 0)};
  piece.echoed.front().has_logprob = false;
  piece.tokens = {token_of('h', 1)};
  const json answer = json::parse(format_answer(head, piece, generation_of({'h'})));
  EXPECT_EQ(answer["choices"][0]["logprobs"], json::parse(R"({
    "text_offset":[0,0,1],
    "token_logprobs":[null,-0.5,-0.5],
    "tokens":["token_id:256","a","h"],
    "top_logprobs":[null,{"x":-0.25,"a":-0.5},{"x":-0.25,"h":-0.5}]})"));
  EXPECT_EQ(answer["choices"][0]["token_ids"], json({'h'}));
}

TEST(CompletionAnswer, ThePromptsLogprobsAreByTokenIds) {
  const ModelConfig config{.vocab_size = 1000, .bos = {}, .eos = {}};
  GenerationOptions options;
  options.max_tokens = 1;
  options.prompt_logprobs = 1;
  Generation generation(config, {256, 'a'}, options, 10);
  generation.accept({{TokenChoice{{'a', -0.5f}, {{300, -0.25f}}, 2}}, token_of('h').choice});
  const json expected = json::parse(R"([null,
    {"97":{"logprob":-0.5,"rank":2,"decoded_token":"a"},
     "300":{"logprob":-0.25,"rank":1,"decoded_token":"token_id:300"}}])");
  const AnswerPiece piece = piece_of("h", {'h'}, "length");
  const json text = json::parse(format_answer(head_of(Endpoint::kCompletions), piece, generation));
  EXPECT_EQ(text["choices"][0]["prompt_logprobs"], expected);
  const json chat = json::parse(format_answer(head_of(Endpoint::kChat), piece, generation));
  EXPECT_EQ(chat["prompt_logprobs"], expected);
}

TEST(CompletionAnswer, TokensAndTheirTextAreInVllmsFormat) {
  const std::vector<TokenId> tokens{256, 'a', 0xC3, 0xA9};
  EXPECT_EQ(format_tokens(tokens, false, 512),
            R"({"count":4,"max_model_len":512,"tokens":[256,97,195,169],"token_strs":null})");
  EXPECT_EQ(json::parse(format_tokens(tokens, true, 512))["token_strs"],
            json({"token_id:256", "a", "bytes:\\xc3", "bytes:\\xa9"}));
  EXPECT_EQ(format_prompt(tokens), R"({"prompt":"aé"})");
}

TEST(CompletionAnswer, LogprobsOfTextAreParallelLists) {
  AnswerHead head = head_of(Endpoint::kCompletions);
  head.logprobs = true;
  const json chunk =
      chunk_json(format_chunk(head, piece_of("h", {'h', 0xC3, 300}, ""), generation_of({})));
  EXPECT_EQ(chunk["choices"][0]["logprobs"], json::parse(R"({
    "text_offset":[0,1,2],
    "token_logprobs":[-0.5,-0.5,-0.5],
    "tokens":["h","bytes:\\xc3","token_id:300"],
    "top_logprobs":[{"x":-0.25,"h":-0.5},{"x":-0.25,"bytes:\\xc3":-0.5},
                    {"x":-0.25,"token_id:300":-0.5}]})"));
  const json last = chunk_json(format_chunk(head, piece_of("", {}, "stop"), generation_of({})));
  EXPECT_TRUE(last["choices"][0]["logprobs"].is_null());
}

TEST(CompletionAnswer, LogprobsOfChatAreAListOfTokens) {
  AnswerHead head = head_of(Endpoint::kChat);
  head.logprobs = true;
  const json answer =
      json::parse(format_answer(head, piece_of("\n", {'\n', 300}, "stop"), generation_of({10})));
  EXPECT_EQ(answer["choices"][0]["logprobs"], json::parse(R"({"content":[
    {"token":"\n","logprob":-0.5,"bytes":[10],"top_logprobs":[
      {"token":"x","logprob":-0.25,"bytes":[120]},{"token":"\n","logprob":-0.5,"bytes":[10]}]},
    {"token":"token_id:300","logprob":-0.5,"bytes":null,"top_logprobs":[
      {"token":"x","logprob":-0.25,"bytes":[120]},
      {"token":"token_id:300","logprob":-0.5,"bytes":null}]}]})"));
}

TEST(CompletionAnswer, ModelsSaysWhatFits) {
  const json models = json::parse(format_models("m", 99, 512));
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["max_model_len"], 512);
  EXPECT_EQ(format_version("1.2"), R"({"version":"1.2"})");
}

TEST(CompletionAnswer, ErrorsNameTheParameter) {
  const http::Response named = format_error({400, "stop is bad", "stop"});
  EXPECT_EQ(named.status, 400);
  EXPECT_EQ(named.body, R"({"error":{"code":400,"message":"stop is bad",)"
                        R"("type":"invalid_request_error","param":"stop"}})");
  const json other = json::parse(format_error({503, "asleep"}).body);
  EXPECT_TRUE(other["error"]["param"].is_null());
  EXPECT_EQ(other["error"]["type"], "server_error");
}

}  // namespace
}  // namespace fo::refengine
