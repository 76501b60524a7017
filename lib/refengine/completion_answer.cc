#include "refengine/completion_answer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hex.h"
#include "http/sse.h"
#include "refengine/tokens.h"

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

ordered_json text_logprobs(const std::vector<AnswerToken>& tokens) {
  ordered_json offsets = ordered_json::array();
  ordered_json logprobs = ordered_json::array();
  ordered_json names = ordered_json::array();
  ordered_json tops = ordered_json::array();
  for (const auto& [choice, offset] : tokens) {
    offsets.push_back(offset);
    logprobs.push_back(choice.chosen.logprob);
    names.push_back(token_name(choice.chosen.token));
    ordered_json top = ordered_json::object();
    for (const auto& [token, logprob] : choice.top) top[token_name(token)] = logprob;
    top[token_name(choice.chosen.token)] = choice.chosen.logprob;
    tops.push_back(std::move(top));
  }
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

ordered_json logprobs_of(const AnswerHead& head, const std::vector<AnswerToken>& tokens) {
  if (!head.logprobs || tokens.empty()) return nullptr;
  return head.endpoint == Endpoint::kChat ? chat_logprobs(tokens) : text_logprobs(tokens);
}

ordered_json ids_of(const std::vector<AnswerToken>& tokens) {
  ordered_json ids = ordered_json::array();
  for (const AnswerToken& token : tokens) ids.push_back(token.choice.chosen.token);
  return ids;
}

ordered_json prompt_ids(const Generation& generation) {
  return std::vector<TokenId>(generation.prompt().begin(), generation.prompt().end());
}

// `key` and `value` are the endpoint's name for the text, and the text.
ordered_json choice_of(const AnswerHead& head, const AnswerPiece& piece, const char* key,
                       ordered_json value) {
  ordered_json choice{{"index", 0}, {key, std::move(value)}};
  choice["logprobs"] = logprobs_of(head, piece.tokens);
  choice["finish_reason"] = nullptr;
  if (!piece.finish.empty()) choice["finish_reason"] = piece.finish;
  if (head.endpoint == Endpoint::kCompletions || head.return_token_ids) {
    choice["token_ids"] = ids_of(piece.tokens);
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

ordered_json usage_of(const Generation& generation) {
  const std::size_t output = generation.output().size();
  return {{"prompt_tokens", generation.prompt_tokens()},
          {"completion_tokens", output},
          {"total_tokens", generation.prompt_tokens() + output}};
}

}  // namespace

std::string format_answer(const AnswerHead& head, const AnswerPiece& piece,
                          const Generation& generation) {
  const bool chat = head.endpoint == Endpoint::kChat;
  ordered_json choice;
  if (chat) {
    ordered_json message{{"role", "assistant"}, {"content", piece.text}};
    choice = choice_of(head, piece, "message", std::move(message));
  } else {
    choice = choice_of(head, piece, "text", piece.text);
    if (head.return_token_ids) choice["prompt_token_ids"] = prompt_ids(generation);
  }
  ordered_json body = answer_of(head, chat ? "chat.completion" : "text_completion",
                                ordered_json::array({std::move(choice)}));
  body["usage"] = usage_of(generation);
  if (chat && head.return_token_ids) body["prompt_token_ids"] = prompt_ids(generation);
  return dump(body);
}

std::string format_first_chunk(const AnswerHead& head, const Generation& generation) {
  const bool chat = head.endpoint == Endpoint::kChat;
  if (!chat && !head.return_token_ids) return {};
  ordered_json choice;
  if (chat) {
    ordered_json delta{{"role", "assistant"}, {"content", ""}};
    choice = choice_of(head, {}, "delta", std::move(delta));
  } else {
    choice = choice_of(head, {}, "text", "");
    choice["prompt_token_ids"] = prompt_ids(generation);
  }
  ordered_json body = chunk_of(head, ordered_json::array({std::move(choice)}));
  if (chat && head.return_token_ids) body["prompt_token_ids"] = prompt_ids(generation);
  return event(body);
}

std::string format_chunk(const AnswerHead& head, const AnswerPiece& piece) {
  ordered_json choice;
  if (head.endpoint == Endpoint::kChat) {
    ordered_json delta = ordered_json::object();
    if (!piece.text.empty() || piece.finish.empty()) delta["content"] = piece.text;
    choice = choice_of(head, piece, "delta", std::move(delta));
  } else {
    choice = choice_of(head, piece, "text", piece.text);
  }
  return event(chunk_of(head, ordered_json::array({std::move(choice)})));
}

std::string format_usage_chunk(const AnswerHead& head, const Generation& generation) {
  ordered_json body = chunk_of(head, ordered_json::array());
  body["usage"] = usage_of(generation);
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

http::Response format_error(const ApiError& error) {
  http::Response response = http::error_response(error.status(), error.what());
  auto body = ordered_json::parse(response.body);
  body["error"]["param"] = nullptr;
  if (!error.parameter().empty()) body["error"]["param"] = error.parameter();
  response.body = dump(body);
  return response;
}

}  // namespace fo::refengine
