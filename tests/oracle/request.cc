#include "oracle/request.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "json/object.h"
#include "refengine/model/splitmix.h"

namespace fo::oracle {
namespace {

using fo::json::find;
using nlohmann::json;
using refengine::splitmix;

constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kMaxStops = 16;
constexpr int kMaxLogprobs = 20;
constexpr double kMaxTemperature = 2;
constexpr double kMaxBias = 100;

[[noreturn]] void refuse(const std::string& parameter, const std::string& reason) {
  throw ApiError(400, parameter + " " + reason, parameter);
}

std::optional<std::uint64_t> read_count(const json& object, const char* key, std::uint64_t min,
                                        std::uint64_t max) {
  const json* value = find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() < min ||
      value->get<std::uint64_t>() > max) {
    refuse(key, max == kAny ? "is not a whole number of at least " + std::to_string(min)
                            : "is not a whole number from " + std::to_string(min) + " to " +
                                  std::to_string(max));
  }
  return value->get<std::uint64_t>();
}

double read_number(const json& body, const char* key, double missing) {
  const json* value = find(body, key);
  if (value == nullptr) return missing;
  if (!value->is_number()) refuse(key, "is not a number");
  return value->get<double>();
}

std::vector<std::string> read_stops(const json& body) {
  const json* value = find(body, "stop");
  if (value == nullptr) return {};
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kMaxStops) refuse("stop", "has over " + std::to_string(kMaxStops) + " strings");
  std::vector<std::string> stops;
  for (const json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) {
      refuse("stop", "is neither a string nor a list of strings that are not empty");
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

std::vector<TokenId> read_optional_tokens(const json& body, const char* key) {
  const json* list = find(body, key);
  return list == nullptr ? std::vector<TokenId>{} : read_tokens(*list, key);
}

std::map<TokenId, double> read_biases(const json& body) {
  const json* value = find(body, "logit_bias");
  if (value == nullptr) return {};
  if (!value->is_object()) refuse("logit_bias", "is not an object");
  std::map<TokenId, double> biases;
  for (const auto& [key, bias] : value->items()) {
    const auto token = base::parse_uint(key);
    if (!token || *token >= vocabulary_size() || !bias.is_number()) {
      refuse("logit_bias", "has no number for each token id");
    }
    biases[static_cast<TokenId>(*token)] = std::clamp(bias.get<double>(), -kMaxBias, kMaxBias);
  }
  return biases;
}

// A parameter that changes an engine's choice in a way that is not computed here, and its neutral
// value as JSON.
struct Parameter {
  const char* name;
  const char* neutral;
};
constexpr std::array kGreedyParameters{
    Parameter{"repetition_penalty", "1"},  Parameter{"presence_penalty", "0"},
    Parameter{"frequency_penalty", "0"},   Parameter{"bad_words", "[]"},
    Parameter{"structured_outputs", "{}"}, Parameter{"response_format", R"({"type":"text"})"}};
constexpr std::array kSampledParameters{Parameter{"temperature", "0"}, Parameter{"top_p", "1"},
                                        Parameter{"top_k", "0"}, Parameter{"min_p", "0"},
                                        Parameter{"seed", "0"}};

void add_parameters(json& found, const json& body, std::span<const Parameter> parameters) {
  for (const Parameter& one : parameters) {
    const json* value = find(body, one.name);
    if (value == nullptr || *value == json::parse(one.neutral)) continue;
    // 1 and 1.0 are the same; a seed has more digits than a double.
    const bool is_real = value->is_number() && std::string_view(one.name) != "seed";
    found[one.name] = is_real ? json(value->get<double>()) : *value;
  }
}

// A digest of the parameters that change the choice; 0 for none.
std::uint64_t sampling_of(const json& body, bool is_sampled, const std::string& adapter) {
  json found = json::object();
  if (!adapter.empty()) found["adapter"] = adapter;
  add_parameters(found, body, kGreedyParameters);
  if (is_sampled) add_parameters(found, body, kSampledParameters);
  if (found.empty()) return 0;
  std::uint64_t hash = 0;
  for (const char c : found.dump()) hash = splitmix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::string read_text(const json& object, const char* key, const std::string& where) {
  const json* value = find(object, key);
  if (value == nullptr || !value->is_string()) {
    throw ApiError(400, where + ": " + key + " is not a string", "messages");
  }
  return value->get<std::string>();
}

void append(std::vector<TokenId>& tokens, std::string_view text) {
  const std::vector<TokenId> more = encode(text);
  tokens.insert(tokens.end(), more.begin(), more.end());
}

void append_content(std::vector<TokenId>& tokens, const json& message, const std::string& where) {
  const json* calls = find(message, "tool_calls");
  const json* content = find(message, "content");
  if (calls != nullptr) append(tokens, calls->dump());
  if (content == nullptr && calls != nullptr) return;
  if (content == nullptr || !content->is_array()) {
    return append(tokens, read_text(message, "content", where));
  }
  for (const json& part : *content) {
    if (read_text(part, "type", where) == "text") {
      append(tokens, read_text(part, "text", where));
    } else {
      tokens.push_back(kMedia);
    }
  }
}

TokenId role_token(const std::string& role, const std::string& where) {
  if (role == "system" || role == "developer") return kSystem;
  if (role == "user") return kUser;
  if (role == "assistant") return kAssistant;
  if (role == "tool") return kTool;
  throw ApiError(400, where + ": role is not system, developer, user, assistant or tool",
                 "messages");
}

std::vector<std::vector<TokenId>> read_prompts(const json& body) {
  const json* prompt = find(body, "prompt");
  if (prompt == nullptr) refuse("prompt", "is missing");
  const bool special = read_flag(body, "add_special_tokens", true);
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return {encode_prompt(*prompt, special)};
  if (prompt->size() > kMaxChoices) {
    refuse("prompt", "has over " + std::to_string(kMaxChoices) + " prompts");
  }
  std::vector<std::vector<TokenId>> prompts;
  for (const json& one : *prompt) prompts.push_back(encode_prompt(one, special));
  return prompts;
}

// The name of the first tool, if one may be called.
std::string read_tool(const json& body) {
  const json* tools = find(body, "tools");
  const json* choice = find(body, "tool_choice");
  if (tools == nullptr || !tools->is_array() || tools->empty()) return {};
  if (choice != nullptr && *choice == "none") return {};
  const json* function = find(tools->front(), "function");
  const json* name = function == nullptr ? nullptr : find(*function, "name");
  if (name == nullptr || !name->is_string()) refuse("tools", "has a function without a name");
  return name->get<std::string>();
}

int read_logprobs(Endpoint endpoint, const json& body) {
  if (endpoint == Endpoint::kCompletions) {
    const auto count = read_count(body, "logprobs", 0, kMaxLogprobs);
    return count ? static_cast<int>(*count) : -1;
  }
  const bool wanted = read_flag(body, "logprobs", false);
  const auto count = read_count(body, "top_logprobs", 0, kMaxLogprobs);
  if (count.value_or(0) > 0 && !wanted) refuse("top_logprobs", "needs logprobs to be true");
  return wanted ? static_cast<int>(count.value_or(0)) : -1;
}

std::uint64_t read_max_tokens(Endpoint endpoint, const json& body, const ModelInfo& model,
                              std::size_t longest_prompt, bool echo) {
  if (longest_prompt >= model.max_model_len) {
    throw ApiError(400,
                   "This model's maximum context length is " + std::to_string(model.max_model_len) +
                       " tokens. However, you requested " + std::to_string(longest_prompt) +
                       " tokens. Please reduce the length of the prompt.",
                   endpoint == Endpoint::kChat ? "messages" : "prompt");
  }
  const std::uint64_t room = model.max_model_len - longest_prompt;
  const bool is_chat = endpoint == Endpoint::kChat;
  const std::uint64_t min = echo ? 0 : 1;
  const auto older = read_count(body, "max_tokens", min, kAny);
  const auto newer = is_chat ? read_count(body, "max_completion_tokens", min, kAny) : std::nullopt;
  const std::uint64_t missing = is_chat ? room : std::min<std::uint64_t>(room, 16);
  const std::uint64_t wanted = newer ? *newer : older.value_or(missing);
  if (wanted > room) {
    throw ApiError(
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: " + std::to_string(wanted) +
            ". This model's maximum context length is " + std::to_string(model.max_model_len) +
            " tokens and your request has " + std::to_string(longest_prompt) + " input tokens.",
        "max_tokens");
  }
  return wanted;
}

void read_stream_options(CompletionRequest& request, const json& body) {
  const json* options = find(body, "stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse("stream_options", "is not an object");
  if (!request.stream) refuse("stream_options", "needs stream to be true");
  request.include_usage = read_flag(*options, "include_usage", false);
  request.continuous_usage =
      request.include_usage && read_flag(*options, "continuous_usage_stats", false);
}

}  // namespace

json parse_body(std::string_view text) {
  try {
    return fo::json::parse_object(text, kMaxBodyBytes);
  } catch (const fo::json::Misfit& error) {
    throw ApiError(400, std::string("the body is not a JSON object: ") + error.what());
  }
}

void apply_knobs(Knobs& knobs, const json& body) {
  const json* wanted = find(body, "oracle");
  if (wanted == nullptr) return;
  try {
    set_knobs(knobs, *wanted);
  } catch (const base::Error& error) {
    throw ApiError(400, error.what(), "oracle");
  }
}

void check_model(const json& body, const ModelInfo& model) {
  const json* name = find(body, "model");
  if (name == nullptr) return;
  if (!name->is_string()) refuse("model", "is not a string");
  const std::string& wanted = name->get_ref<const std::string&>();
  if (wanted == model.name || std::ranges::find(model.adapters, wanted) != model.adapters.end()) {
    return;
  }
  throw ApiError(404, "the model " + base::quoted(wanted) + " does not exist", "model");
}

bool read_flag(const json& object, const char* key, bool missing) {
  const json* value = find(object, key);
  if (value == nullptr) return missing;
  if (!value->is_boolean()) refuse(key, "is not true or false");
  return value->get<bool>();
}

std::vector<TokenId> read_tokens(const json& list, const char* parameter) {
  std::vector<TokenId> tokens;
  const auto check = [&](bool is_valid) {
    if (is_valid) return;
    refuse(parameter, "is not a list of token ids below " + std::to_string(vocabulary_size()));
  };
  check(list.is_array());
  for (const json& token : list) {
    check(token.is_number_unsigned() && token.get<std::uint64_t>() < vocabulary_size());
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

std::vector<TokenId> encode_prompt(const json& prompt, bool add_special_tokens) {
  std::vector<TokenId> tokens;
  if (prompt.is_string()) {
    if (add_special_tokens) tokens.push_back(kBegin);
    append(tokens, prompt.get_ref<const std::string&>());
  } else {
    tokens = read_tokens(prompt, "prompt");
  }
  if (tokens.empty()) refuse("prompt", "is empty");
  return tokens;
}

std::vector<TokenId> encode_chat(const json& body, bool reasoning) {
  const json* messages = find(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    refuse("messages", "is not a list of messages");
  }
  std::vector<TokenId> tokens{kBegin};
  if (const json* tools = find(body, "tools"); tools != nullptr && !tools->empty()) {
    tokens.push_back(kSystem);
    append(tokens, tools->dump());
    tokens.push_back(kEnd);
  }
  for (std::size_t i = 0; i < messages->size(); ++i) {
    const std::string where = "messages[" + std::to_string(i) + "]";
    const json& message = messages->at(i);
    tokens.push_back(role_token(read_text(message, "role", where), where));
    append_content(tokens, message, where);
    tokens.push_back(kEnd);
  }
  const bool continues = read_flag(body, "continue_final_message", false);
  const bool prompts = read_flag(body, "add_generation_prompt", true);
  if (continues && prompts) {
    refuse("continue_final_message", "needs add_generation_prompt to be false");
  }
  if (continues) tokens.pop_back();
  if (prompts) tokens.push_back(kAssistant);
  if (prompts && reasoning) tokens.push_back(kThink);
  return tokens;
}

CompletionRequest parse_completion(Endpoint endpoint, const json& from, const ModelInfo& model,
                                   const Knobs& knobs) {
  check_model(from, model);
  json body = from;
  for (const auto& [parameter, value] : model.defaults) {
    if (find(body, parameter.c_str()) == nullptr) body[parameter] = value;
  }
  const bool is_chat = endpoint == Endpoint::kChat;
  CompletionRequest request;
  request.endpoint = endpoint;
  const json* name = find(body, "model");
  request.model = name == nullptr ? model.name : name->get<std::string>();
  request.stream = read_flag(body, "stream", false);
  read_stream_options(request, body);
  request.return_token_ids = read_flag(body, "return_token_ids", false);
  if (request.return_token_ids && knobs.token_ids == "refused") {
    refuse("return_token_ids", "is not supported");
  }
  if (knobs.token_ids != "yes") request.return_token_ids = false;
  request.n = read_count(body, "n", 1, kMaxChoices).value_or(1);
  request.echo = !is_chat && read_flag(body, "echo", false);
  if (is_chat) {
    request.prompts = {encode_chat(body, knobs.reasoning)};
    if (knobs.tool_calls) request.tool = read_tool(body);
  } else {
    request.prompts = read_prompts(body);
  }
  if (request.n * request.prompts.size() > kMaxChoices) {
    refuse("n", "asks for over " + std::to_string(kMaxChoices) + " choices");
  }
  const double temperature = read_number(body, "temperature", 0);
  if (temperature < 0 || temperature > kMaxTemperature) {
    refuse("temperature", "is not a number from 0 to 2");
  }
  // A sampler that may choose only the best token is greedy, whatever its seed.
  request.is_sampled = temperature > 0 && read_number(body, "top_k", 0) != 1;

  GenerationOptions& options = request.options;
  const auto longest = std::ranges::max_element(request.prompts, {}, &std::vector<TokenId>::size);
  options.max_tokens = read_max_tokens(endpoint, body, model, longest->size(), request.echo);
  options.min_tokens = read_count(body, "min_tokens", 0, options.max_tokens).value_or(0);
  options.ignore_end = read_flag(body, "ignore_eos", false);
  options.stop_tokens = read_optional_tokens(body, "stop_token_ids");
  options.stops = read_stops(body);
  options.include_stop = read_flag(body, "include_stop_str_in_output", false);
  options.special = read_flag(body, "skip_special_tokens", true) ? SpecialTokens::kSkipped
                                                                 : SpecialTokens::kShown;
  options.allowed = read_optional_tokens(body, "allowed_token_ids");
  const std::string adapter = request.model == model.name ? std::string() : request.model;
  options.sampling = sampling_of(body, request.is_sampled, adapter);
  options.biases = read_biases(body);
  options.frequency_penalty = read_number(body, "frequency_penalty", 0);
  options.presence_penalty = read_number(body, "presence_penalty", 0);
  options.logprobs = read_logprobs(endpoint, body);
  options.logprob_noise = knobs.logprob_noise;
  if (knobs.wrong_sampler && temperature > 0) options.wrong_from = 0;
  return request;
}

}  // namespace fo::oracle
