#include "oracle/other_apis.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::oracle {
namespace {

using fo::json::find;
using nlohmann::json;

const json& member(const json& body, const char* key) {
  const json* value = find(body, key);
  if (value == nullptr) throw ApiError(400, std::string(key) + " is missing", key);
  return *value;
}

}  // namespace

json format_models(const ModelInfo& model, std::time_t created) {
  return {{"object", "list"},
          {"data", json::array({{{"id", model.name},
                                 {"object", "model"},
                                 {"created", created},
                                 {"owned_by", "fo-oracle"},
                                 {"root", model.name},
                                 {"parent", nullptr},
                                 {"max_model_len", model.max_model_len}}})}};
}

json tokenize(const json& body, const ModelInfo& model) {
  const bool is_chat = find(body, "messages") != nullptr;
  const std::vector<TokenId> tokens =
      is_chat ? encode_chat(body, false)
              : encode_prompt(member(body, "prompt"), read_flag(body, "add_special_tokens", true));
  json answer{{"count", tokens.size()},
              {"max_model_len", model.max_model_len},
              {"tokens", tokens},
              {"token_strs", nullptr}};
  if (read_flag(body, "return_token_strs", false)) {
    answer["token_strs"] = json::array();
    for (const TokenId token : tokens) {
      answer["token_strs"].push_back(valid_text(bytes_of(token)));
    }
  }
  return answer;
}

json detokenize(const json& body, const ModelInfo&) {
  const std::vector<TokenId> tokens = read_tokens(member(body, "tokens"), "tokens");
  return {{"prompt", text_of(tokens, SpecialTokens::kShown)}};
}

}  // namespace fo::oracle
