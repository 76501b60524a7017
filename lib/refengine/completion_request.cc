#include "refengine/completion_request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "json/object.h"
#include "refengine/tokens.h"

namespace fo::refengine {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& parameter, const std::string& reason) {
  throw ApiError(400, parameter + " " + reason, parameter);
}

json parse_body(std::string_view text) {
  try {
    return fo::json::parse_object(text, kMaxBodyBytes);
  } catch (const fo::json::TooDeep&) {
    throw ApiError(400, "the body is nested too deeply");
  } catch (const fo::json::Misfit&) {
    throw ApiError(400, "the body is not a JSON object");
  }
}

bool read_flag(const json& object, const char* key) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse(key, "is not true or false");
  return value->get<bool>();
}

std::optional<std::uint64_t> read_count(const json& object, const char* key, std::uint64_t least,
                                        std::uint64_t most) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= least &&
                    value->get<std::uint64_t>() <= most;
  if (fits) return value->get<std::uint64_t>();
  if (most == std::numeric_limits<std::uint64_t>::max()) {
    refuse(key, "is not a whole number of at least " + std::to_string(least));
  }
  refuse(key,
         "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

// A parameter that is not supported, and its neutral values, as a JSON list.
struct Unsupported {
  const char* parameter;
  const char* neutral;
};
constexpr std::array kUnsupported{
    Unsupported{"n", "[1]"},
    Unsupported{"best_of", "[1]"},
    Unsupported{"echo", "[false]"},
    Unsupported{"suffix", R"([""])"},
    Unsupported{"presence_penalty", "[0]"},
    Unsupported{"frequency_penalty", "[0]"},
    Unsupported{"repetition_penalty", "[1]"},
    Unsupported{"length_penalty", "[1]"},
    Unsupported{"logit_bias", "[{}]"},
    Unsupported{"top_k", "[0,-1]"},
    Unsupported{"min_p", "[0]"},
    Unsupported{"min_tokens", "[0]"},
    Unsupported{"use_beam_search", "[false]"},
    Unsupported{"prompt_logprobs", "[]"},
    Unsupported{"response_format", R"([{"type":"text"}])"},
    Unsupported{"structured_outputs", "[]"},
    Unsupported{"tools", "[[]]"},
    Unsupported{"tool_choice", R"(["none","auto"])"},
    Unsupported{"chat_template", "[]"},
    Unsupported{"add_generation_prompt", "[true]"},
    Unsupported{"continue_final_message", "[false]"},
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

void check_model(const json& body, const std::string& model_name) {
  const json* model = fo::json::find(body, "model");
  if (model == nullptr) return;
  if (!model->is_string()) refuse("model", "is not a string");
  const std::string& name = model->get_ref<const std::string&>();
  if (name == model_name) return;
  throw ApiError(404, "the model " + base::quoted(name) + " does not exist", "model");
}

std::vector<TokenId> read_tokens(const json& list, const char* parameter,
                                 const ModelConfig& config) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const json& token : list) {
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() >= config.vocab_size) {
      refuse(parameter, "is not a list of token ids below " + std::to_string(config.vocab_size));
    }
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

std::vector<TokenId> encode_prompt(std::string_view text, const char* parameter,
                                   const ModelConfig& config) {
  try {
    return encode_text(text, config);
  } catch (const base::Error& error) {
    throw ApiError(400, error.what(), parameter);
  }
}

std::vector<TokenId> read_prompt(const json& body, const ModelConfig& config) {
  const json* prompt = fo::json::find(body, "prompt");
  if (prompt == nullptr) refuse("prompt", "is missing");
  if (prompt->is_string()) {
    return encode_prompt(prompt->get_ref<const std::string&>(), "prompt", config);
  }
  if (!prompt->is_array()) refuse("prompt", "is neither a string nor a list of token ids");
  return read_tokens(*prompt, "prompt", config);
}

const std::string& read_string(const json& object, const char* key, const std::string& where) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr || !value->is_string()) {
    throw ApiError(400, where + ": " + key + " is not a string", "messages");
  }
  return value->get_ref<const std::string&>();
}

std::string read_content(const json& message, const std::string& where) {
  const json* content = fo::json::find(message, "content");
  if (content == nullptr || !content->is_array()) return read_string(message, "content", where);
  if (content->size() > kMaxParts) {
    throw ApiError(400, where + ": content has over " + std::to_string(kMaxParts) + " parts",
                   "messages");
  }
  std::string text;
  for (const json& part : *content) {
    if (!part.is_object() || read_string(part, "type", where) != "text") {
      throw ApiError(400, where + ": content has a part that is not text", "messages");
    }
    text += read_string(part, "text", where);
  }
  return text;
}

// The chat template of fo-refengine(1).
std::vector<TokenId> read_messages(const json& body, const ModelConfig& config) {
  const json* messages = fo::json::find(body, "messages");
  if (messages == nullptr) refuse("messages", "is missing");
  if (!messages->is_array() || messages->empty() || messages->size() > kMaxMessages) {
    refuse("messages", "is not a list of 1 to " + std::to_string(kMaxMessages) + " messages");
  }
  std::string text;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    const json& message = messages->at(i);
    if (!message.is_object()) throw ApiError(400, where + " is not an object", "messages");
    const std::string& role = read_string(message, "role", where);
    if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
      throw ApiError(400, where + ": role is not system, developer, user or assistant", "messages");
    }
    text += role + ": " + read_content(message, where) + "\n";
  }
  return encode_prompt(text + "assistant: ", "messages", config);
}

// nullopt: as many as fit.
std::optional<std::uint64_t> read_max_tokens(Endpoint endpoint, const json& body) {
  constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
  const auto most = read_count(body, "max_tokens", 1, kAny);
  if (endpoint == Endpoint::kCompletions) return most.value_or(16);
  const auto newer = read_count(body, "max_completion_tokens", 1, kAny);
  return newer ? newer : most;
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

std::int32_t read_logprobs(Endpoint endpoint, const json& body) {
  if (endpoint == Endpoint::kCompletions) {
    const auto count = read_count(body, "logprobs", 0, 5);
    return count ? static_cast<std::int32_t>(*count) : -1;
  }
  const bool wanted = read_flag(body, "logprobs");
  const auto count = read_count(body, "top_logprobs", 0, 20);
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

std::vector<std::string> read_stops(const json& body) {
  const json* value = fo::json::find(body, "stop");
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kMaxStops) {
    refuse("stop", "has over " + std::to_string(kMaxStops) + " strings");
  }
  std::vector<std::string> stops;
  for (const json& stop : list) {
    if (!stop.is_string()) refuse("stop", "is neither a string nor a list of strings");
    const std::string& text = stop.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopBytes) {
      refuse("stop", "has a string that is empty or longer than " + std::to_string(kMaxStopBytes) +
                         " bytes");
    }
    stops.push_back(text);
  }
  return stops;
}

std::vector<TokenId> read_stop_tokens(const json& body, const ModelConfig& config) {
  const json* list = fo::json::find(body, "stop_token_ids");
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() > kMaxStopTokens) {
    refuse("stop_token_ids",
           "is not a list of up to " + std::to_string(kMaxStopTokens) + " token ids");
  }
  return read_tokens(*list, "stop_token_ids", config);
}

}  // namespace

CompletionRequest parse_completion(Endpoint endpoint, std::string_view text,
                                   const ModelConfig& config, const std::string& model_name,
                                   std::uint64_t random_seed) {
  const json body = parse_body(text);
  check_model(body, model_name);
  refuse_unsupported(body);
  CompletionRequest request;
  request.endpoint = endpoint;
  request.prompt =
      endpoint == Endpoint::kChat ? read_messages(body, config) : read_prompt(body, config);
  request.options.max_tokens = read_max_tokens(endpoint, body);
  request.options.ignore_eos = read_flag(body, "ignore_eos");
  request.options.stop_tokens = read_stop_tokens(body, config);
  request.options.sampling = read_sampling(endpoint, body, random_seed);
  request.stops = read_stops(body);
  request.stream = read_flag(body, "stream");
  request.return_token_ids = read_flag(body, "return_token_ids");
  if (const json* options = fo::json::find(body, "stream_options"); options != nullptr) {
    if (!options->is_object()) refuse("stream_options", "is not an object");
    request.include_usage = read_flag(*options, "include_usage");
  }
  return request;
}

std::string parse_rpc_method(std::string_view text) {
  const json body = parse_body(text);
  const json* method = fo::json::find(body, "method");
  return method != nullptr && method->is_string() ? method->get<std::string>() : std::string();
}

}  // namespace fo::refengine
