#include "route/resume/text/text_continuation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "json/object.h"
#include "json/scanner.h"

namespace fo::route {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = " \t\r\n";

// `text` without the white space at its end.
std::string_view stripped(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

}  // namespace

void TextContinuation::count(const StreamChunk& chunk) {
  events_ += chunk.tokens;
  if (chunk.usage) usage_ = chunk.usage;
  // The prompt of a later engine contains a part of the answer.
  if (chunk.usage && !prompt_tokens_) {
    prompt_tokens_ = chunk.usage->prompt_tokens - std::min(before_, chunk.usage->prompt_tokens);
  }
}

std::uint64_t TextContinuation::tokens() const {
  // Some engines report usage with a few events only.
  return before_ + std::max(events_, usage_ ? usage_->completion_tokens : 0);
}

std::optional<Usage> TextContinuation::usage() const {
  if (!prompt_tokens_) return std::nullopt;
  return Usage{*prompt_tokens_, tokens()};
}

void TextContinuation::begin(std::string_view text) {
  before_ = tokens();
  events_ = 0;
  usage_.reset();
  left_out_ = text.substr(stripped(text).size());
}

std::string_view TextContinuation::fresh(std::string_view text) {
  const auto [again, rest] =
      std::mismatch(left_out_.begin(), left_out_.end(), text.begin(), text.end());
  const bool may_go_on = rest == text.end();
  left_out_ = may_go_on ? std::string(again, left_out_.end()) : std::string();
  return text.substr(static_cast<std::size_t>(rest - text.begin()));
}

std::string TextContinuation::body(const ClientRequest& request, std::string_view text,
                                   const Rest& rest, bool is_streamed) {
  json body = json::parse(request.body);
  const std::string prefix = fo::json::without_halves(std::string(stripped(text)));
  if (request.api == Api::kChat) {
    body["messages"].push_back({{"role", "assistant"}, {"content", prefix}});
    body["continue_final_message"] = true;
    body["add_generation_prompt"] = false;
  } else {
    json& prompt = body["prompt"];
    if (prompt.is_array()) prompt = json(prompt.front());
    prompt = prompt.get<std::string>() + prefix;
  }
  // The client's own name for the limit is the one that the engine knows.
  const bool has_newer = fo::json::find(body, "max_completion_tokens") != nullptr;
  if (rest.max_tokens) body[has_newer ? "max_completion_tokens" : "max_tokens"] = *rest.max_tokens;
  if (fo::json::find(body, "min_tokens") != nullptr) body["min_tokens"] = rest.min_tokens;
  if (rest.seed) body["seed"] = *rest.seed;
  body.erase("stop");
  body["stream"] = is_streamed;
  body.erase("stream_options");
  if (is_streamed) {
    body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  }
  return fo::json::dump(body);
}

}  // namespace fo::route
