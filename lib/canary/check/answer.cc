#include "canary/check/answer.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/text.h"
#include "http/message.h"
#include "json/object.h"

namespace fo::canary {
namespace {

using fo::json::Misfit;
using nlohmann::json;

constexpr base::ByteCount kMaxEventBytes = base::kMiB;
constexpr std::size_t kMaxMessageBytes = 200;

std::vector<TokenId> ids_in(const json& choice, const char* name) {
  std::vector<TokenId> ids;
  for (const json& id : fo::json::list_in(choice, name)) ids.push_back(token_id(id, name));
  return ids;
}

const json& logprob_list(const json& choice, const char* name, std::size_t size) {
  const json* const logprobs = fo::json::find(choice, "logprobs");
  const json* const list = logprobs == nullptr ? nullptr : fo::json::find(*logprobs, name);
  if (list == nullptr || !list->is_array() || list->size() != size) {
    throw Misfit("the answer has tokens without " + std::string(name));
  }
  return *list;
}

}  // namespace

std::vector<TokenId> Answer::ids() const {
  std::vector<TokenId> ids;
  for (const AnswerToken& token : tokens) ids.push_back(token.token);
  return ids;
}

void AnswerReader::add(std::string_view data) {
  if (is_done_) return;
  if (data == "[DONE]") {
    is_done_ = true;
    return;
  }
  const json event = fo::json::parse_object(data, kMaxEventBytes);
  if (fo::json::find(event, "error") != nullptr) {
    throw Misfit("the engine reports an error: " + error_message_of(data));
  }
  const json* const choices = fo::json::find(event, "choices");
  if (choices == nullptr || !choices->is_array()) throw Misfit("an event without choices");
  if (choices->empty()) return;
  const json& choice = choices->front();
  std::vector<TokenId> prompt = ids_in(choice, "prompt_token_ids");
  if (prompt.size() > kMaxPromptTokens) throw Misfit("the prompt is too long");
  if (!prompt.empty()) answer_.prompt = std::move(prompt);
  const std::vector<TokenId> ids = ids_in(choice, "token_ids");
  if (answer_.tokens.size() + ids.size() > max_tokens_) {
    throw Misfit("the answer has more tokens than requested");
  }
  std::vector<AnswerToken> tokens;
  for (const TokenId id : ids) tokens.push_back({.token = id});
  if (has_logprobs_ && !ids.empty()) {
    const json& chosen = logprob_list(choice, "token_logprobs", ids.size());
    const json& best = logprob_list(choice, "top_logprobs", ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      tokens[i].logprob = finite(chosen[i], "a log-probability");
      const bool fits = best[i].is_object() && best[i].size() <= kMaxTopTokens;
      if (!fits)
        throw Misfit("top_logprobs: not an object of at most " + std::to_string(kMaxTopTokens));
      for (const auto& [text, logprob] : best[i].items()) {
        tokens[i].top[text] = finite(logprob, "a log-probability");
      }
    }
  }
  answer_.tokens.insert(answer_.tokens.end(), tokens.begin(), tokens.end());
  const json* const finish = fo::json::find(choice, "finish_reason");
  if (finish == nullptr) {
    const json* const text = fo::json::find(choice, "text");
    const bool has_text = text != nullptr && text->is_string() && !text->get<std::string>().empty();
    if (has_text && answer_.tokens.empty()) throw UnnamedTokens();
    return;
  }
  if (!finish->is_string()) throw Misfit("finish_reason is not a text");
  if (answer_.tokens.empty()) throw UnnamedTokens();
  answer_.finish = finish->get<std::string>();
  is_done_ = true;
}

std::string error_message_of(std::string_view body) {
  return base::one_line(http::error_message_in(body), kMaxMessageBytes);
}

}  // namespace fo::canary
