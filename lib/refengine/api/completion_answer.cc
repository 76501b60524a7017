#include "refengine/api/completion_answer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hex.h"
#include "http/sse.h"
#include "refengine/model/tokens.h"

namespace fo::refengine {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string event(const ordered_json& object) { return http::format_sse(dump(object)); }

// A token as text. Tokens that are not text must stay distinguishable: a byte of a longer character
// is spelled as by OpenAI, a token without bytes as by vLLM.
std::string token_name(TokenId token) {
  if (token >= kByteTokens) return "token_id:" + std::to_string(token);
  if (token < 0x80) return std::string(1, static_cast<char>(token));
  return "bytes:\\x" + base::to_hex(std::array{static_cast<std::byte>(token)});
}

ordered_json text_logprobs(const AnswerPiece& piece) {
  ordered_json offsets = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json names = ordered_json::array();
  ordered_json tops = ordered_json::array();
  const auto add = [&](const AnswerToken& token) {
    const TokenLogprob& chosen = token.choice.chosen;
    offsets.push_back(token.offset);
    names.push_back(token_name(chosen.token));
    if (!token.has_logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      return;
    }
    ordered_json top = ordered_json::object();
    for (const auto& [other, logprob] : token.choice.top) top[token_name(other)] = logprob;
    top[token_name(chosen.token)] = chosen.logprob;
    logprobs.push_back(chosen.logprob);
    tops.push_back(std::move(top));
  };
  std::ranges::for_each(piece.echoed, add);
  std::ranges::for_each(piece.tokens, add);
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(logprobs)},
          {"tokens", std::move(names)},
          {"top_logprobs", std::move(tops)}};
}

ordered_json chat_logprob(const TokenLogprob& one) {
  ordered_json object{
      {"token", token_name(one.token)}, {"logprob", one.logprob}, {"bytes", nullptr}};
  if (one.token < kByteTokens) object["bytes"] = ordered_json::array({one.token});
  return object;
}

ordered_json chat_logprobs(const std::vector<AnswerToken>& tokens) {
  ordered_json content = ordered_json::array();
  for (const AnswerToken& token : tokens) {
    ordered_json one = chat_logprob(token.choice.chosen);
    ordered_json top = ordered_json::array();
    for (const TokenLogprob& other : token.choice.top) top.push_back(chat_logprob(other));
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

ordered_json logprobs_of(const AnswerHead& head, const AnswerPiece& piece) {
  if (!head.logprobs || (piece.tokens.empty() && piece.echoed.empty())) return nullptr;
  return head.endpoint == Endpoint::kChat ? chat_logprobs(piece.tokens) : text_logprobs(piece);
}

// For each token of the prompt, its probability and those of the likeliest ones, by their ids.
ordered_json prompt_logprobs(const Generation& generation) {
  ordered_json list = ordered_json::array({nullptr});
  for (const TokenChoice& score : generation.prompt_scores()) {
    ordered_json tokens = ordered_json::object();
    const auto add = [&tokens](const TokenLogprob& one, std::size_t rank) {
      tokens[std::to_string(one.token)] = {
          {"logprob", one.logprob}, {"rank", rank}, {"decoded_token", token_name(one.token)}};
    };
    add(score.chosen, score.rank);
    for (std::size_t i = 0; i < score.top.size(); ++i) add(score.top[i], i + 1);
    list.push_back(std::move(tokens));
  }
  return list;
}

ordered_json ids_of(const std::vector<AnswerToken>& tokens) {
  ordered_json ids = ordered_json::array();
  for (const AnswerToken& token : tokens) ids.push_back(token.choice.chosen.token);
  return ids;
}

std::vector<TokenId> prompt_ids(const Generation& generation) {
  return std::vector<TokenId>(generation.prompt().begin(), generation.prompt().end());
}

ordered_json to_json(const StopReason& reason) {
  if (const auto* token = std::get_if<TokenId>(&reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  return nullptr;
}

// `key` is the member that has the text at this endpoint, and `value` is its value.
ordered_json choice_of(const AnswerHead& head, const AnswerPiece& piece, const char* key,
                       ordered_json value, const Generation& generation) {
  const bool is_text = head.endpoint == Endpoint::kCompletions;
  ordered_json choice{{"index", 0}, {key, std::move(value)}};
  choice["logprobs"] = logprobs_of(head, piece);
  choice["finish_reason"] = nullptr;
  if (!piece.finish.empty()) choice["finish_reason"] = piece.finish;
  choice["stop_reason"] = to_json(piece.stop_reason);
  if (is_text || head.return_token_ids) choice["token_ids"] = ids_of(piece.tokens);
  if (is_text && head.return_token_ids && piece.is_first) {
    choice["prompt_token_ids"] = prompt_ids(generation);
  }
  return choice;
}

ordered_json answer_of(const AnswerHead& head, const char* object, ordered_json choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

ordered_json chunk_of(const AnswerHead& head, ordered_json choices) {
  const bool chat = head.endpoint == Endpoint::kChat;
  return answer_of(head, chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
}

ordered_json usage_of(const AnswerHead& head, const Generation& generation) {
  const std::size_t output = generation.output().size();
  ordered_json usage{{"prompt_tokens", generation.prompt_tokens()},
                     {"completion_tokens", output},
                     {"total_tokens", generation.prompt_tokens() + output}};
  if (head.cached_tokens) {
    usage["prompt_tokens_details"] = {{"cached_tokens", generation.cached_tokens()}};
  }
  return usage;
}

std::string chunk_event(const AnswerHead& head, ordered_json chunk, const Generation& generation) {
  if (head.continuous_usage) chunk["usage"] = usage_of(head, generation);
  return event(chunk);
}

}  // namespace

std::string format_answer(const AnswerHead& head, const AnswerPiece& piece,
                          const Generation& generation) {
  const bool chat = head.endpoint == Endpoint::kChat;
  ordered_json choice;
  if (chat) {
    ordered_json message{{"role", "assistant"}, {"content", piece.text}};
    choice = choice_of(head, piece, "message", std::move(message), generation);
  } else {
    choice = choice_of(head, piece, "text", piece.text, generation);
  }
  const bool has_scores = generation.options().prompt_logprobs >= 0;
  if (!chat && has_scores) choice["prompt_logprobs"] = prompt_logprobs(generation);
  ordered_json body = answer_of(head, chat ? "chat.completion" : "text_completion",
                                ordered_json::array({std::move(choice)}));
  body["usage"] = usage_of(head, generation);
  if (chat && has_scores) body["prompt_logprobs"] = prompt_logprobs(generation);
  if (chat && head.return_token_ids) body["prompt_token_ids"] = prompt_ids(generation);
  return dump(body);
}

std::string format_role_chunk(const AnswerHead& head, const Generation& generation) {
  const ordered_json choice{{"index", 0},
                            {"delta", {{"role", "assistant"}, {"content", ""}}},
                            {"logprobs", nullptr},
                            {"finish_reason", nullptr}};
  ordered_json body = chunk_of(head, ordered_json::array({choice}));
  if (head.return_token_ids) body["prompt_token_ids"] = prompt_ids(generation);
  return chunk_event(head, std::move(body), generation);
}

std::string format_chunk(const AnswerHead& head, const AnswerPiece& piece,
                         const Generation& generation) {
  ordered_json choice;
  if (head.endpoint == Endpoint::kChat) {
    choice = choice_of(head, piece, "delta", {{"content", piece.text}}, generation);
  } else {
    choice = choice_of(head, piece, "text", piece.text, generation);
  }
  return chunk_event(head, chunk_of(head, ordered_json::array({std::move(choice)})), generation);
}

std::string format_usage_chunk(const AnswerHead& head, const Generation& generation) {
  ordered_json body = chunk_of(head, ordered_json::array());
  body["usage"] = usage_of(head, generation);
  return event(body);
}

std::string format_models(const std::string& model_name, std::int64_t created,
                          std::uint32_t positions) {
  const ordered_json model{{"id", model_name},
                           {"object", "model"},
                           {"created", created},
                           {"owned_by", "fo-refengine"},
                           {"max_model_len", positions}};
  return dump({{"object", "list"}, {"data", ordered_json::array({model})}});
}

std::string format_version(const std::string& version) { return dump({{"version", version}}); }

std::string format_tokens(std::span<const TokenId> tokens, bool return_token_strs,
                          std::uint32_t positions) {
  ordered_json body{{"count", tokens.size()},
                    {"max_model_len", positions},
                    {"tokens", std::vector<TokenId>(tokens.begin(), tokens.end())},
                    {"token_strs", nullptr}};
  if (return_token_strs) {
    body["token_strs"] = ordered_json::array();
    for (const TokenId token : tokens) body["token_strs"].push_back(token_name(token));
  }
  return dump(body);
}

std::string format_prompt(std::span<const TokenId> tokens) {
  return dump({{"prompt", decode_tokens(tokens)}});
}

http::Response format_error(const ApiError& error) {
  http::Response response = http::error_response(error.status(), error.what());
  auto body = ordered_json::parse(response.body);
  body["error"]["param"] = nullptr;
  if (!error.parameter().empty()) body["error"]["param"] = error.parameter();
  response.body = dump(body);
  return response;
}

}  // namespace fo::refengine
