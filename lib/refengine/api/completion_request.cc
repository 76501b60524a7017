#include "refengine/api/completion_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "json/object.h"
#include "refengine/api/prompt.h"

namespace fo::refengine {
namespace {

using nlohmann::json;

// A parameter that is not supported, and its neutral values, as a JSON list.
struct Unsupported {
  const char* parameter;
  const char* neutral;
};
constexpr std::array kUnsupported{
    Unsupported{"n", "[1]"},
    Unsupported{"best_of", "[1]"},
    Unsupported{"suffix", R"([""])"},
    Unsupported{"presence_penalty", "[0]"},
    Unsupported{"frequency_penalty", "[0]"},
    Unsupported{"repetition_penalty", "[1]"},
    Unsupported{"repetition_detection", "[]"},
    Unsupported{"length_penalty", "[1]"},
    Unsupported{"top_k", "[0,-1]"},
    Unsupported{"min_p", "[0]"},
    Unsupported{"use_beam_search", "[false]"},
    Unsupported{"logits_processors", "[[]]"},
    Unsupported{"logprob_token_ids", "[]"},
    Unsupported{"return_tokens_as_token_ids", "[false]"},
    Unsupported{"truncate_prompt_tokens", "[]"},
    Unsupported{"prompt_embeds", "[]"},
    Unsupported{"stream_interval", "[1]"},
    Unsupported{"thinking_token_budget", "[-1]"},
    Unsupported{"vllm_xargs", "[{}]"},
    Unsupported{"watermarking", "[false]"},
    Unsupported{"response_format", R"([{"type":"text"}])"},
    Unsupported{"structured_outputs", "[]"},
    Unsupported{"guided_json", "[]"},
    Unsupported{"guided_regex", "[]"},
    Unsupported{"guided_choice", "[]"},
    Unsupported{"guided_grammar", "[]"},
    Unsupported{"structural_tag", "[]"},
    Unsupported{"tools", "[[]]"},
    Unsupported{"tool_choice", R"(["none","auto"])"},
    Unsupported{"documents", "[[]]"},
    Unsupported{"chat_template", "[]"},
    Unsupported{"chat_template_kwargs", "[{}]"},
};

void refuse_unsupported(const json& body) {
  for (const Unsupported& one : kUnsupported) {
    const json* value = fo::json::find(body, one.parameter);
    if (value == nullptr) continue;
    const json neutral = json::parse(one.neutral);
    if (std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) continue;
    if (neutral.empty()) refuse(one.parameter, "is not supported");
    refuse(one.parameter, "other than " + neutral.front().dump() + " is not supported");
  }
}

// These flags are only validated: tokens above the bytes have no text that could be skipped.
void check_special_tokens(const json& body) {
  read_flag(body, "skip_special_tokens", true);
  read_flag(body, "spaces_between_special_tokens", true);
}

bool read_echo(Endpoint endpoint, const json& body) {
  const bool echo = read_flag(body, "echo");
  if (echo && endpoint == Endpoint::kChat) refuse("echo", "other than false is not supported");
  return echo;
}

// nullopt: as many as fit.
std::optional<std::uint64_t> read_max_tokens(Endpoint endpoint, const json& body, bool echo) {
  const auto older = read_count(body, "max_tokens", echo ? 0 : 1, kAnyCount);
  if (endpoint == Endpoint::kCompletions) return older.value_or(16);
  const auto newer = read_count(body, "max_completion_tokens", 1, kAnyCount);
  return newer ? newer : older;
}

double read_number(const json& body, const char* key, double absent, bool valid(double),
                   const char* wanted) {
  const json* value = fo::json::find(body, key);
  if (value == nullptr) return absent;
  if (!value->is_number() || !valid(value->get<double>())) refuse(key, wanted);
  return value->get<double>();
}

std::uint64_t read_seed(const json& body, std::uint64_t absent) {
  const json* value = fo::json::find(body, "seed");
  if (value == nullptr) return absent;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() ||
                     value->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
  if (!fits) refuse("seed", "is not a whole number of 64 bits");
  return static_cast<std::uint64_t>(value->get<std::int64_t>());
}

std::int32_t count_or_none(const std::optional<std::uint64_t>& count) {
  return count ? static_cast<std::int32_t>(*count) : -1;
}

std::int32_t read_logprobs(Endpoint endpoint, const json& body) {
  if (endpoint == Endpoint::kCompletions) {
    return count_or_none(read_count(body, "logprobs", 0, kMaxLogprobs));
  }
  const bool wanted = read_flag(body, "logprobs");
  const auto count = read_count(body, "top_logprobs", 0, kMaxLogprobs);
  if (count && !wanted) refuse("top_logprobs", "needs logprobs to be true");
  return wanted ? static_cast<std::int32_t>(count.value_or(0)) : -1;
}

Sampling read_sampling(Endpoint endpoint, const json& body, std::uint64_t random_seed) {
  Sampling sampling;
  sampling.temperature = read_number(
      body, "temperature", 0, [](double value) { return value >= 0 && value <= 2; },
      "is not a number from 0 to 2");
  sampling.top_p = read_number(
      body, "top_p", 1, [](double value) { return value > 0 && value <= 1; },
      "is not a number above 0 and up to 1");
  sampling.seed = read_seed(body, random_seed);
  sampling.logprobs = read_logprobs(endpoint, body);
  return sampling;
}

// Up to `max` strings of up to kMaxStopBytes bytes, none of them empty; or one string.
std::vector<std::string> read_strings(const json& body, const char* key, std::size_t max) {
  const json* value = fo::json::find(body, key);
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > max) refuse(key, "has over " + std::to_string(max) + " strings");
  std::vector<std::string> strings;
  for (const json& one : list) {
    if (!one.is_string()) refuse(key, "is neither a string nor a list of strings");
    const std::string& text = one.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopBytes) {
      refuse(key, "has a string that is empty or longer than " + std::to_string(kMaxStopBytes) +
                      " bytes");
    }
    strings.push_back(text);
  }
  return strings;
}

std::vector<TokenId> read_stop_tokens(const json& body, const ModelConfig& config) {
  const json* list = fo::json::find(body, "stop_token_ids");
  if (list == nullptr) return {};
  if (list->is_array() && list->size() > kMaxStopTokens) {
    refuse("stop_token_ids", "has over " + std::to_string(kMaxStopTokens) + " token ids");
  }
  return read_tokens(*list, "stop_token_ids", config);
}

// As in vLLM, spaces before a word are removed. vLLM also bans the word after a space if that has
// the same number of tokens, which is never so with tokens of bytes.
std::vector<std::vector<TokenId>> read_bad_words(const json& body, const ModelConfig& config) {
  std::vector<std::vector<TokenId>> words;
  for (const std::string& word : read_strings(body, "bad_words", kMaxBadWords)) {
    const std::size_t begin = word.find_first_not_of(" \t\n\v\f\r");
    if (begin == std::string::npos) refuse("bad_words", "has a word of spaces only");
    words.push_back(encode_member(word.substr(begin), false, "bad_words", config));
  }
  return words;
}

std::vector<TokenId> read_allowed(const json& body, const ModelConfig& config) {
  const json* list = fo::json::find(body, "allowed_token_ids");
  if (list == nullptr) return {};
  std::vector<TokenId> allowed = read_tokens(*list, "allowed_token_ids", config);
  if (allowed.empty()) refuse("allowed_token_ids", "is empty");
  return allowed;
}

// Larger biases are cut to this, as in vLLM.
constexpr double kMaxBias = 100;

std::vector<LogitBias> read_biases(const json& body, const ModelConfig& config) {
  const json* biases = fo::json::find(body, "logit_bias");
  if (biases == nullptr) return {};
  if (!biases->is_object()) refuse("logit_bias", "is not an object");
  std::vector<LogitBias> result;
  for (const auto& [key, bias] : biases->items()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    // Only the canonical spelling is valid: another one would be a second bias of the same token.
    const bool is_id = error == std::errc() && std::to_string(token) == key;
    if (!is_id || token >= config.vocab_size || !bias.is_number()) {
      refuse("logit_bias",
             "is not an object of numbers by token ids below " + std::to_string(config.vocab_size));
    }
    const double value = std::clamp(bias.get<double>(), -kMaxBias, kMaxBias);
    result.push_back({token, static_cast<float>(value)});
  }
  return result;
}

// An echo with probabilities includes those of the prompt. A stream reports those of the prompt
// only in an echo.
std::int32_t read_prompt_logprobs(const json& body, const CompletionRequest& request) {
  const auto count = read_count(body, "prompt_logprobs", 0, kMaxLogprobs);
  if (count && request.stream) refuse("prompt_logprobs", "needs stream to be false");
  if (!count && request.echo) return request.options.sampling.logprobs;
  return count_or_none(count);
}

std::optional<std::string> read_snapshot(const json& body) {
  const json* parameters = fo::json::find(body, "kv_transfer_params");
  if (parameters == nullptr) return std::nullopt;
  if (!parameters->is_object()) refuse("kv_transfer_params", "is not an object");
  const json* id = fo::json::find(*parameters, "fo_snapshot");
  if (id == nullptr) return std::nullopt;
  if (!id->is_string()) refuse("kv_transfer_params", "has a fo_snapshot that is not a string");
  return id->get<std::string>();
}

void read_stream_options(CompletionRequest& request, const json& body) {
  const json* options = fo::json::find(body, "stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse("stream_options", "is not an object");
  if (!request.stream) refuse("stream_options", "needs stream to be true");
  request.include_usage = read_flag(*options, "include_usage");
  request.continuous_usage = read_flag(*options, "continuous_usage_stats") && request.include_usage;
}

}  // namespace

CompletionRequest parse_completion(Endpoint endpoint, std::string_view text,
                                   const ModelConfig& config, const std::string& model_name,
                                   std::uint64_t random_seed) {
  const json body = parse_body(text);
  check_model(body, model_name);
  refuse_unsupported(body);
  check_special_tokens(body);
  CompletionRequest request;
  request.endpoint = endpoint;
  request.prompt =
      endpoint == Endpoint::kChat ? read_chat(body, config) : read_prompt(body, config);
  request.echo = read_echo(endpoint, body);
  request.stream = read_flag(body, "stream");
  request.return_token_ids = read_flag(body, "return_token_ids");
  request.snapshot = read_snapshot(body);
  read_stream_options(request, body);
  GenerationOptions& options = request.options;
  options.max_tokens = read_max_tokens(endpoint, body, request.echo);
  options.min_tokens = read_count(body, "min_tokens", 0, kAnyCount).value_or(0);
  options.ignore_eos = read_flag(body, "ignore_eos");
  options.stop_tokens = read_stop_tokens(body, config);
  options.bad_words = read_bad_words(body, config);
  options.constraints = {read_biases(body, config), read_allowed(body, config)};
  options.sampling = read_sampling(endpoint, body, random_seed);
  options.prompt_logprobs = read_prompt_logprobs(body, request);
  request.text.stops = read_strings(body, "stop", kMaxStops);
  request.text.include_stop = read_flag(body, "include_stop_str_in_output");
  request.text.min_tokens = options.min_tokens;
  return request;
}

std::string parse_rpc_method(std::string_view text) {
  const json body = parse_body(text);
  const json* method = fo::json::find(body, "method");
  return method != nullptr && method->is_string() ? method->get<std::string>() : std::string();
}

}  // namespace fo::refengine
