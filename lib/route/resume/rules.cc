#include "route/resume/rules.h"

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "json/object.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

using nlohmann::json;

// Fields that shape the prompt, whose tokens a continuation repeats, and fields that do not change
// the answer.
constexpr std::array<std::string_view, 19> kWithoutEffect{"add_generation_prompt",
                                                          "add_special_tokens",
                                                          "chat_template",
                                                          "chat_template_kwargs",
                                                          "continue_final_message",
                                                          "documents",
                                                          "metadata",
                                                          "parallel_tool_calls",
                                                          "prompt_cache_key",
                                                          "prompt_cache_retention",
                                                          "reasoning_effort",
                                                          "request_id",
                                                          "rid",
                                                          "safety_identifier",
                                                          "service_tier",
                                                          "stream",
                                                          "truncate_prompt_tokens",
                                                          "truncation_side",
                                                          "user"};

// Sampling parameters for which a card may have defaults.
constexpr std::array<std::string_view, 5> kSampling{"min_p", "repetition_penalty", "temperature",
                                                    "top_k", "top_p"};

constexpr std::array<std::string_view, 7> kRepeatedFields{"allowed_token_ids",
                                                          "bad_words",
                                                          "cache_salt",
                                                          "lora_path",
                                                          "model",
                                                          "priority",
                                                          "spaces_between_special_tokens"};

// Fields with a value that is the same as none.
struct Neutral {
  std::string_view name;
  std::string_view value;
  const char* reason;
};
constexpr const char* kUnrepeated = "a continuation cannot have it";
constexpr const char* kOwnTokens = "the engine looks only at the tokens that it generated itself";
constexpr std::array kNeutral{
    Neutral{"best_of", "1", "several choices"},
    Neutral{"echo", "false", "the answer begins with the prompt"},
    Neutral{"include_reasoning", "true", "a part of the answer is not sent"},
    Neutral{"length_penalty", "1", "beams"},
    Neutral{"modalities", R"(["text"])", "the answer is not only text"},
    Neutral{"n", "1", "several choices"},
    Neutral{"no_stop_trim", "false", kUnrepeated},
    Neutral{"presence_penalty", "0", kOwnTokens},
    Neutral{"repetition_detection", "{}", kOwnTokens},
    Neutral{"response_format", R"({"type":"text"})", "guided decoding starts from its beginning"},
    Neutral{"return_hidden_states", "false", kUnrepeated},
    Neutral{"return_tokens_as_token_ids", "false", kUnrepeated},
    Neutral{"separate_reasoning", "true", kUnrepeated},
    Neutral{"store", "false", kUnrepeated},
    Neutral{"stream_reasoning", "true", kUnrepeated},
    Neutral{"top_logprobs", "0", "log-probs of a chat"},
    Neutral{"use_beam_search", "false", "beams"},
    Neutral{"watermarking", "false", kUnrepeated}};

class FactsReader {
 public:
  FactsReader(const json& body, Api api, const ResumeOptions& options)
      : body_(body), is_chat_(api == Api::kChat), options_(options) {}

  ResumeFacts read() {
    for (const auto& [name, value] : body_.items()) {
      if (!value.is_null()) read_field(name, value);
    }
    facts_.hides_reasoning =
        is_chat_ && (is_false("include_reasoning") || is_false("stream_reasoning"));
    facts_.may_pause = facts_.hides_reasoning || offers_tools_;
    facts_.text_refusal = find_text_refusal();
    return std::move(facts_);
  }

 private:
  void refuse(const std::string& name, const std::string& reason) {
    if (facts_.refusal.empty()) facts_.refusal = base::quoted(name) + ": " + reason;
  }

  [[nodiscard]] bool is_false(const char* name) const {
    const json* value = fo::json::find(body_, name);
    return value != nullptr && *value == false;
  }

  void repeat(const std::string& name, const json& value) {
    if (!facts_.repeated.empty()) facts_.repeated += ",";
    facts_.repeated += fo::json::dump(name) + ":" + fo::json::dump(value);
  }

  void read_field(const std::string& name, const json& value) {
    if (text::is_one_of(name, kWithoutEffect)) return;
    if (text::is_one_of(name, kSampling)) {
      facts_.given.insert(name);
      return repeat(name, value);
    }
    if (text::is_one_of(name, kRepeatedFields)) return repeat(name, value);
    for (const Neutral& one : kNeutral) {
      if (name != one.name) continue;
      if (value != json::parse(one.value)) refuse(name, one.reason);
      return;
    }
    if (is_chat_ ? read_chat_field(name, value) : read_text_field(name, value)) return;
    if (!read_common_field(name, value)) refuse(name, kUnrepeated);
  }

  // These return false for another field.

  bool read_chat_field(const std::string& name, const json& value) {
    if (name == "messages") {
      read_messages(value);
    } else if (name == "tools") {
      const json* choice = fo::json::find(body_, "tool_choice");
      const bool are_offered = choice == nullptr || *choice != "none";
      offers_tools_ = !value.empty() && are_offered;
      if (offers_tools_) refuse(name, "the worker parses the calls");
    } else if (name == "tool_choice") {
      // These have no effect without tools.
    } else if (name == "max_completion_tokens") {
      read_count(name, value, facts_.max_tokens);
    } else if (name == "logprobs") {
      if (value != false) refuse(name, "log-probs of a chat");
    } else {
      return false;
    }
    return true;
  }

  bool read_text_field(const std::string& name, const json& value) {
    if (name == "prompt") {
      const bool is_list = value.is_array() && !value.empty() && !value.front().is_number();
      if (is_list && value.size() > 1) refuse(name, "several prompts");
    } else if (name == "logprobs") {
      read_count(name, value, facts_.logprobs);
      repeat(name, value);
    } else {
      return false;
    }
    return true;
  }

  bool read_common_field(const std::string& name, const json& value) {
    if (name == "stop") {
      read_stops(value);
    } else if (name == "stop_token_ids") {
      read_stop_ids(value);
    } else if (name == "min_tokens") {
      std::optional<std::uint64_t> count;
      read_count(name, value, count);
      facts_.min_tokens = count.value_or(0);
    } else if (name == "max_tokens") {
      const bool has_newer = is_chat_ && fo::json::find(body_, "max_completion_tokens") != nullptr;
      if (!has_newer) read_count(name, value, facts_.max_tokens);
    } else if (name == "include_stop_str_in_output") {
      read_repeated_flag(name, value, facts_.include_stop);
    } else if (name == "ignore_eos") {
      read_repeated_flag(name, value, facts_.ignore_eos);
    } else if (name == "skip_special_tokens") {
      read_repeated_flag(name, value, facts_.skip_special_tokens);
    } else if (name == "return_token_ids") {
      read_flag(name, value, facts_.wants_ids);
    } else if (name == "stream_options") {
      read_stream_options(value);
    } else if (name == "seed") {
      read_seed(value);
    } else if (name == "logit_bias") {
      read_logit_bias(value);
    } else if (name == "frequency_penalty") {
      read_frequency_penalty(value);
    } else {
      return false;
    }
    return true;
  }

  void read_flag(const std::string& name, const json& value, bool& flag) {
    if (!value.is_boolean()) return refuse(name, "expected true or false");
    flag = value.get<bool>();
  }

  void read_repeated_flag(const std::string& name, const json& value, bool& flag) {
    read_flag(name, value, flag);
    repeat(name, value);
  }

  void read_count(const std::string& name, const json& value, std::optional<std::uint64_t>& count) {
    if (!value.is_number_unsigned()) return refuse(name, "expected a non-negative integer");
    count = value.get<std::uint64_t>();
  }

  // Parts without a type are an image or text to some engines.
  void read_messages(const json& messages) {
    for (const json& message : messages) {
      const json* content = fo::json::find(message, "content");
      bool is_text = fo::json::find(message, "audio") == nullptr;
      if (content != nullptr && content->is_array()) {
        for (const json& part : *content) {
          const json* type = fo::json::find(part, "type");
          is_text = is_text && (part.is_string() || (type != nullptr && *type == "text"));
        }
      }
      if (!is_text) refuse("messages", "a part is not text");
    }
  }

  void read_stops(const json& value) {
    std::size_t bytes = 0;
    for (const json& stop : value.is_array() ? value : json::array({value})) {
      if (!stop.is_string() || stop.get_ref<const std::string&>().empty()) {
        return refuse("stop", "expected a text, or a list of texts, that are not empty");
      }
      facts_.stops.push_back(stop.get<std::string>());
      bytes += facts_.stops.back().size();
    }
    if (bytes > kMaxStopBytes) refuse("stop", "too long");
  }

  void read_stop_ids(const json& value) {
    if (!value.is_array()) return refuse("stop_token_ids", "expected a list");
    for (const json& id : value) {
      if (!id.is_number_unsigned()) return refuse("stop_token_ids", "expected token ids");
      facts_.stop_ids.push_back(id.get<std::uint64_t>());
    }
  }

  void read_stream_options(const json& value) {
    if (!value.is_object()) return refuse("stream_options", "expected an object");
    bool is_continuous = false;
    for (const auto& [name, option] : value.items()) {
      if (option.is_null()) continue;
      const std::string path = "stream_options." + name;
      if (name == "include_usage") {
        read_flag(path, option, facts_.wants_usage);
      } else if (name == "continuous_usage_stats") {
        read_flag(path, option, is_continuous);
      } else if (option != false) {
        refuse(path, kUnrepeated);
      }
    }
    // In vLLM, the second depends on the first.
    facts_.wants_continuous_usage = facts_.wants_usage && is_continuous;
  }

  void read_seed(const json& value) {
    const bool is_too_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
    if (!value.is_number_integer() || is_too_large) {
      return refuse("seed", "expected an integer of 64 bits");
    }
    facts_.seed = value.get<std::int64_t>();
    const json* temperature = fo::json::find(body_, "temperature");
    const bool is_greedy = temperature != nullptr && *temperature == 0;
    if (options_.strict_seed && !is_greedy) refuse("seed", "the random numbers would start again");
  }

  void read_logit_bias(const json& value) {
    if (!value.is_object()) return refuse("logit_bias", "expected an object");
    facts_.logit_bias.reserve(value.size());
    for (const auto& [key, bias] : value.items()) {
      std::uint32_t token = 0;
      const char* const end = key.data() + key.size();
      const auto [rest, error] = std::from_chars(key.data(), end, token);
      if (error != std::errc{} || rest != end || !bias.is_number()) {
        return refuse("logit_bias", "expected a number for each token id");
      }
      facts_.logit_bias.emplace_back(token, bias.get<double>());
    }
  }

  void read_frequency_penalty(const json& value) {
    if (!value.is_number()) return refuse("frequency_penalty", "expected a number");
    facts_.frequency_penalty = value.get<double>();
    if (facts_.frequency_penalty == 0) return;
    repeat("frequency_penalty", value);
    if (!options_.penalties) return refuse("frequency_penalty", kOwnTokens);
    // Engines multiply by the repetition penalty after they have added a bias.
    const json* repetition = fo::json::find(body_, "repetition_penalty");
    if (repetition != nullptr && *repetition != 1) {
      refuse("frequency_penalty", "no bias replaces it beside a repetition penalty");
    }
  }

  // The prompt is a text, or a list of one text.
  [[nodiscard]] bool has_one_text() const {
    const json* prompt = fo::json::find(body_, "prompt");
    if (prompt == nullptr) return false;
    const bool is_list = prompt->is_array() && prompt->size() == 1;
    return is_list ? prompt->front().is_string() : prompt->is_string();
  }

  // A continuation after the text can be requested only if the prompt is text, too, and ends with
  // it.
  [[nodiscard]] std::string find_text_refusal() const {
    if (!options_.text) return "the worker does not report token ids";
    constexpr const char* kUnnamed = ": the worker does not report token ids";
    if (facts_.logprobs) return "'logprobs'" + std::string(kUnnamed);
    if (facts_.frequency_penalty != 0) return "'frequency_penalty'" + std::string(kUnnamed);
    if (fo::json::find(body_, "truncate_prompt_tokens") != nullptr) {
      return "'truncate_prompt_tokens'" + std::string(kUnnamed);
    }
    if (!is_chat_) return has_one_text() ? "" : "'prompt'" + std::string(kUnnamed);
    const json* continues = fo::json::find(body_, "continue_final_message");
    const json* prompts = fo::json::find(body_, "add_generation_prompt");
    const json* messages = fo::json::find(body_, "messages");
    const bool has_messages = messages != nullptr && messages->is_array() && !messages->empty();
    if (!has_messages) return "'messages': expected a list";
    const json* role = fo::json::find(messages->back(), "role");
    if (continues != nullptr && *continues != false) {
      return "'continue_final_message'" + std::string(kUnnamed);
    }
    if (prompts != nullptr && *prompts != true) {
      return "'add_generation_prompt'" + std::string(kUnnamed);
    }
    const bool has_begun = role != nullptr && *role == "assistant";
    return has_begun ? "'messages': the last one is the assistant's" : "";
  }

  const json& body_;
  const bool is_chat_;
  const ResumeOptions& options_;
  bool offers_tools_ = false;
  ResumeFacts facts_;
};

}  // namespace

ResumeFacts read_resume_facts(const json& body, Api api, const ResumeOptions& options) {
  if (api != Api::kChat && api != Api::kCompletions) {
    ResumeFacts facts;
    facts.refusal = "only chats and completions can continue";
    return facts;
  }
  return FactsReader(body, api, options).read();
}

}  // namespace fo::route
