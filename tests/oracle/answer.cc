#include "oracle/answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "http/sse.h"

namespace fo::oracle {
namespace {

using nlohmann::ordered_json;

std::string all_text(const ChoicePart& part) {
  std::string text = part.prefix;
  for (const AnswerToken& token : part.tokens) text += token.text;
  return text;
}

std::string text_of(const ChoicePart& part, bool is_thinking) {
  std::string text;
  for (const AnswerToken& token : part.tokens) {
    if (token.is_thinking == is_thinking) text += token.text;
  }
  return text;
}

bool thinks(const ChoicePart& part) {
  return std::ranges::any_of(part.tokens, &AnswerToken::is_thinking);
}

ordered_json ids_of(const std::vector<AnswerToken>& tokens) {
  ordered_json ids = ordered_json::array();
  for (const AnswerToken& token : tokens) ids.push_back(token.token);
  return ids;
}

ordered_json to_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"completion_tokens", usage.completion_tokens}};
}

ordered_json to_json(const Generation::StopReason& reason) {
  if (const auto* token = std::get_if<TokenId>(&reason)) return *token;
  if (const auto* text = std::get_if<std::string>(&reason)) return *text;
  return nullptr;
}

std::string name_of(TokenId token) { return valid_text(bytes_of(token)); }

ordered_json scored(TokenId token, double logprob) {
  ordered_json bytes = ordered_json::array();
  for (const char byte : bytes_of(token)) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", name_of(token)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

ordered_json chat_logprobs(const ChoicePart& part) {
  ordered_json content = ordered_json::array();
  for (const AnswerToken& token : part.tokens) {
    ordered_json one = scored(token.token, token.logprob);
    one["top_logprobs"] = ordered_json::array();
    for (const ScoredToken& other : token.best) {
      one["top_logprobs"].push_back(scored(other.token, other.logprob));
    }
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}};
}

ordered_json text_logprobs(const ChoicePart& part) {
  ordered_json lists{{"text_offset", ordered_json::array()},
                     {"token_logprobs", ordered_json::array()},
                     {"tokens", ordered_json::array()},
                     {"top_logprobs", ordered_json::array()}};
  std::size_t offset = part.offset + base::count_characters(part.prefix);
  for (const AnswerToken& token : part.tokens) {
    ordered_json top = ordered_json::object();
    for (const ScoredToken& other : token.best) top[name_of(other.token)] = other.logprob;
    top[name_of(token.token)] = token.logprob;
    lists["text_offset"].push_back(offset);
    lists["token_logprobs"].push_back(token.logprob);
    lists["tokens"].push_back(name_of(token.token));
    lists["top_logprobs"].push_back(std::move(top));
    offset += base::count_characters(token.text);
  }
  return lists;
}

// The inside of a string of JSON.
std::string escaped(const std::string& text) {
  const std::string quoted = ordered_json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

std::size_t characters_of(const ChoicePart& part) { return base::count_characters(all_text(part)); }

AnswerFormat::AnswerFormat(const CompletionRequest& request, std::string id, std::string model,
                           std::int64_t created)
    : request_(request), id_(std::move(id)), model_(std::move(model)), created_(created) {}

ordered_json AnswerFormat::envelope(const char* object, ordered_json choices) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_},
          {"choices", std::move(choices)}};
}

ordered_json AnswerFormat::logprobs(const ChoicePart& part) const {
  if (request_.options.logprobs < 0 || part.tokens.empty()) return nullptr;
  return is_chat() ? chat_logprobs(part) : text_logprobs(part);
}

// The arguments are an object with the text of the answer.
ordered_json AnswerFormat::tool_call(const ChoicePart& part, bool is_delta) const {
  const bool begins = !is_delta || part.begins_content;
  const bool ends = !part.finish.empty();
  std::string arguments = begins ? R"({"text":")" : "";
  arguments += escaped(text_of(part, false));
  if (ends) arguments += R"("})";
  ordered_json call = ordered_json::object();
  if (is_delta) call["index"] = 0;
  if (begins) {
    call["id"] = "call_" + id_ + "_" + std::to_string(part.index);
    call["type"] = "function";
  }
  call["function"] = ordered_json::object();
  if (begins) call["function"]["name"] = request_.tool;
  call["function"]["arguments"] = std::move(arguments);
  return call;
}

ordered_json AnswerFormat::message(const ChoicePart& part, bool is_delta) const {
  ordered_json message = ordered_json::object();
  if (!is_delta) message["role"] = "assistant";
  if (thinks(part)) message["reasoning_content"] = text_of(part, true);
  const bool only_thinks = is_delta && std::ranges::all_of(part.tokens, &AnswerToken::is_thinking);
  if (only_thinks && part.finish.empty()) return message;
  if (request_.tool.empty()) {
    message["content"] = text_of(part, false);
  } else {
    if (!is_delta) message["content"] = nullptr;
    message["tool_calls"] = ordered_json::array({tool_call(part, is_delta)});
  }
  return message;
}

ordered_json AnswerFormat::choice(const ChoicePart& part, bool is_delta) const {
  ordered_json choice{{"index", part.index}};
  if (is_chat()) {
    choice[is_delta ? "delta" : "message"] = message(part, is_delta);
  } else {
    choice["text"] = all_text(part);
  }
  choice["logprobs"] = logprobs(part);
  choice["finish_reason"] = nullptr;
  if (!part.finish.empty()) {
    const bool calls = !request_.tool.empty() && part.finish == "stop";
    choice["finish_reason"] = calls ? "tool_calls" : part.finish;
  }
  choice["stop_reason"] = to_json(part.stop_reason);
  choice["token_ids"] = nullptr;
  if (request_.return_token_ids) choice["token_ids"] = ids_of(part.tokens);
  if (!is_chat() && part.prompt != nullptr) {
    choice["prompt_token_ids"] = nullptr;
    if (request_.return_token_ids) choice["prompt_token_ids"] = *part.prompt;
  }
  return choice;
}

std::string AnswerFormat::event(ordered_json choices, const Usage& usage) const {
  ordered_json body =
      envelope(is_chat() ? "chat.completion.chunk" : "text_completion", std::move(choices));
  if (request_.continuous_usage) body["usage"] = to_json(usage);
  return http::format_sse(body.dump());
}

std::string AnswerFormat::role_event(std::size_t index, const std::vector<TokenId>& prompt,
                                     const Usage& usage) const {
  ordered_json choice{{"index", index},
                      {"delta", {{"role", "assistant"}, {"content", ""}}},
                      {"logprobs", nullptr},
                      {"finish_reason", nullptr}};
  ordered_json body = envelope("chat.completion.chunk", ordered_json::array({std::move(choice)}));
  body["prompt_token_ids"] = nullptr;
  if (request_.return_token_ids) body["prompt_token_ids"] = prompt;
  if (request_.continuous_usage) body["usage"] = to_json(usage);
  return http::format_sse(body.dump());
}

std::string AnswerFormat::part_event(const ChoicePart& part, const Usage& usage) const {
  return event(ordered_json::array({choice(part, true)}), usage);
}

std::string AnswerFormat::usage_event(const Usage& usage) const {
  ordered_json body =
      envelope(is_chat() ? "chat.completion.chunk" : "text_completion", ordered_json::array());
  body["usage"] = to_json(usage);
  return http::format_sse(body.dump());
}

std::string AnswerFormat::whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
  ordered_json list = ordered_json::array();
  for (const ChoicePart& part : choices) list.push_back(choice(part, false));
  ordered_json body = envelope(is_chat() ? "chat.completion" : "text_completion", std::move(list));
  body["usage"] = to_json(usage);
  if (is_chat()) {
    body["prompt_token_ids"] = nullptr;
    if (request_.return_token_ids) body["prompt_token_ids"] = request_.prompts.front();
  }
  return body.dump();
}

}  // namespace fo::oracle
