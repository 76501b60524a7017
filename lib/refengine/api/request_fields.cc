#include "refengine/api/request_fields.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/object.h"
#include "refengine/model/tokens.h"

namespace fo::refengine {

using nlohmann::json;

json parse_body(std::string_view text) {
  try {
    return fo::json::parse_object(text, kMaxBodyBytes);
  } catch (const fo::json::TooDeep&) {
    throw ApiError(400, "the body is nested too deeply");
  } catch (const fo::json::Misfit&) {
    throw ApiError(400, "the body is not a JSON object");
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

void refuse(const std::string& parameter, const std::string& reason) {
  throw ApiError(400, parameter + " " + reason, parameter);
}

bool read_flag(const json& object, const char* key, bool missing) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr) return missing;
  if (!value->is_boolean()) refuse(key, "is not true or false");
  return value->get<bool>();
}

std::optional<std::uint64_t> read_count(const json& object, const char* key, std::uint64_t min,
                                        std::uint64_t max) {
  const json* value = fo::json::find(object, key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_unsigned() && value->get<std::uint64_t>() >= min &&
                    value->get<std::uint64_t>() <= max;
  if (fits) return value->get<std::uint64_t>();
  if (max == kAnyCount) refuse(key, "is not a whole number of at least " + std::to_string(min));
  refuse(key, "is not a whole number from " + std::to_string(min) + " to " + std::to_string(max));
}

std::vector<TokenId> read_tokens(const json& list, const char* parameter,
                                 const ModelConfig& config) {
  std::vector<TokenId> tokens;
  const auto check = [&](bool is_valid) {
    if (is_valid) return;
    refuse(parameter, "is not a list of token ids below " + std::to_string(config.vocab_size));
  };
  check(list.is_array());
  tokens.reserve(list.size());
  for (const json& token : list) {
    check(token.is_number_unsigned() && token.get<std::uint64_t>() < config.vocab_size);
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

std::vector<TokenId> encode_member(std::string_view text, bool add_special, const char* parameter,
                                   const ModelConfig& config) {
  try {
    return encode_text(text, config, add_special);
  } catch (const base::Error& error) {
    throw ApiError(400, error.what(), parameter);
  }
}

}  // namespace fo::refengine
