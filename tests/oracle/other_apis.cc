#include "oracle/other_apis.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "http/sse.h"
#include "json/object.h"
#include "refengine/model/splitmix.h"
#include "text/base64.h"

namespace fo::oracle {
namespace {

using fo::json::find;
using nlohmann::json;

const json& member(const json& body, const char* key) {
  const json* value = find(body, key);
  if (value == nullptr) throw ApiError(400, std::string(key) + " is missing", key);
  return *value;
}

constexpr std::size_t kDimensions = 16;

// The prompts of a member that is one or a list of them.
std::vector<std::vector<TokenId>> read_inputs(const json& body, const char* key) {
  const json& value = member(body, key);
  const bool is_list = value.is_array() && !value.empty() && !value.front().is_number();
  if (!is_list) return {encode_prompt(value, true)};
  std::vector<std::vector<TokenId>> inputs;
  for (const json& one : value) inputs.push_back(encode_prompt(one, true));
  return inputs;
}

std::uint64_t hash_of(const std::vector<TokenId>& tokens, const ModelInfo& model) {
  std::uint64_t hash = model.weights.seed;
  for (const TokenId token : tokens) hash = refengine::splitmix(hash ^ token);
  return hash;
}

// Returns a number from 0 to 1.
double fraction_of(std::uint64_t hash) {
  return static_cast<double>(hash) / static_cast<double>(std::numeric_limits<std::uint64_t>::max());
}

std::array<float, kDimensions> vector_of(std::uint64_t hash) {
  std::array<float, kDimensions> vector{};
  for (float& one : vector) {
    hash = refengine::splitmix(hash);
    one = static_cast<float>(2 * fraction_of(hash) - 1);
  }
  return vector;
}

double score_of(std::vector<TokenId> query, const std::vector<TokenId>& document,
                const ModelInfo& model) {
  query.insert(query.end(), document.begin(), document.end());
  return fraction_of(hash_of(query, model));
}

struct Text {
  std::string text;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t tokens = 0;
  bool is_stopped = false;
};

// A chat's answer of at most the number of tokens in the member `limit`.
Text answer_chat(const json& messages, const json& body, const char* limit,
                 const ModelInfo& model) {
  json chat{{"messages", messages}};
  if (const json* most = find(body, limit)) chat["max_tokens"] = *most;
  const CompletionRequest request = parse_completion(Endpoint::kChat, chat, model, {});
  Generation generation(model.weights, request.prompts.front(), request.options);
  Text answer;
  while (!generation.finished()) answer.text += generation.next().text;
  answer.prompt_tokens = request.prompts.front().size();
  answer.tokens = generation.tokens();
  answer.is_stopped = generation.finish() == "stop";
  return answer;
}

json usage_of(const Text& text) {
  return {{"input_tokens", text.prompt_tokens},
          {"output_tokens", text.tokens},
          {"total_tokens", text.prompt_tokens + text.tokens}};
}

std::string typed_event(json data) {
  http::SseEvent event;
  event.type = data.at("type").get<std::string>();
  event.data = data.dump();
  return http::format_sse(event);
}

}  // namespace

json format_models(const ModelInfo& model, std::time_t created) {
  const auto card = [&](const std::string& name, const json& parent) {
    return json{{"id", name},
                {"object", "model"},
                {"created", created},
                {"owned_by", "fo-oracle"},
                {"root", name},
                {"parent", parent},
                {"max_model_len", model.max_model_len}};
  };
  json data = json::array({card(model.name, nullptr)});
  for (const std::string& adapter : model.adapters) data.push_back(card(adapter, model.name));
  return {{"object", "list"}, {"data", std::move(data)}};
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

json embed(const json& body, const ModelInfo& model) {
  const json* format = find(body, "encoding_format");
  const bool is_base64 = format != nullptr && *format == "base64";
  json data = json::array();
  std::uint64_t tokens = 0;
  for (const std::vector<TokenId>& input : read_inputs(body, "input")) {
    const auto vector = vector_of(hash_of(input, model));
    const auto bytes = std::bit_cast<std::array<char, sizeof vector>>(vector);
    json embedding = vector;
    if (is_base64) embedding = text::encode_base64({bytes.data(), bytes.size()});
    data.push_back({{"object", "embedding"}, {"index", data.size()}, {"embedding", embedding}});
    tokens += input.size();
  }
  return {{"object", "list"},
          {"model", model.name},
          {"data", std::move(data)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

json rerank(const json& body, const ModelInfo& model) {
  const std::vector<TokenId> query = encode_prompt(member(body, "query"), true);
  const json& documents = member(body, "documents");
  std::vector<json> results;
  std::uint64_t tokens = 0;
  for (const std::vector<TokenId>& document : read_inputs(body, "documents")) {
    const std::size_t index = results.size();
    results.push_back({{"index", index},
                       {"document", {{"text", documents.at(index)}}},
                       {"relevance_score", score_of(query, document, model)}});
    tokens += query.size() + document.size();
  }
  std::ranges::sort(results, std::greater<>(),
                    [](const json& one) { return one.at("relevance_score").get<double>(); });
  return {{"model", model.name}, {"results", results}, {"usage", {{"total_tokens", tokens}}}};
}

json score(const json& body, const ModelInfo& model) {
  const std::vector<TokenId> query = encode_prompt(member(body, "text_1"), true);
  json data = json::array();
  std::uint64_t tokens = 0;
  for (const std::vector<TokenId>& document : read_inputs(body, "text_2")) {
    data.push_back(
        {{"index", data.size()}, {"object", "score"}, {"score", score_of(query, document, model)}});
    tokens += query.size() + document.size();
  }
  return {{"object", "list"},
          {"model", model.name},
          {"data", std::move(data)},
          {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
}

json respond(const json& body, const ModelInfo& model, const std::string& id) {
  const json& input = member(body, "input");
  const json messages =
      input.is_string() ? json::array({{{"role", "user"}, {"content", input}}}) : input;
  const Text answer = answer_chat(messages, body, "max_output_tokens", model);
  const json content{
      {"type", "output_text"}, {"text", answer.text}, {"annotations", json::array()}};
  return {{"id", id},
          {"object", "response"},
          {"model", model.name},
          {"status", answer.is_stopped ? "completed" : "incomplete"},
          {"output", json::array({{{"type", "message"},
                                   {"id", "msg_" + id},
                                   {"role", "assistant"},
                                   {"status", "completed"},
                                   {"content", json::array({content})}}})},
          {"usage", usage_of(answer)}};
}

std::string respond_events(const json& response) {
  const json& text = response.at("output").at(0).at("content").at(0).at("text");
  json begun = response;
  begun["status"] = "in_progress";
  begun["output"] = json::array();
  return typed_event({{"type", "response.created"}, {"response", std::move(begun)}}) +
         typed_event({{"type", "response.output_text.delta"}, {"delta", text}}) +
         typed_event({{"type", "response.completed"}, {"response", response}});
}

json converse(const json& body, const ModelInfo& model, const std::string& id) {
  const Text answer = answer_chat(member(body, "messages"), body, "max_tokens", model);
  return {{"id", id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model.name},
          {"content", json::array({{{"type", "text"}, {"text", answer.text}}})},
          {"stop_reason", answer.is_stopped ? "end_turn" : "max_tokens"},
          {"stop_sequence", nullptr},
          {"usage", usage_of(answer)}};
}

std::string converse_events(const json& message) {
  json begun = message;
  begun["content"] = json::array();
  begun["stop_reason"] = nullptr;
  const json empty{{"type", "text"}, {"text", ""}};
  const json delta{{"type", "text_delta"}, {"text", message.at("content").at(0).at("text")}};
  return typed_event({{"type", "message_start"}, {"message", std::move(begun)}}) +
         typed_event({{"type", "content_block_start"}, {"index", 0}, {"content_block", empty}}) +
         typed_event({{"type", "content_block_delta"}, {"index", 0}, {"delta", delta}}) +
         typed_event({{"type", "content_block_stop"}, {"index", 0}}) +
         typed_event({{"type", "message_delta"},
                      {"delta", {{"stop_reason", message.at("stop_reason")}}},
                      {"usage", message.at("usage")}}) +
         typed_event({{"type", "message_stop"}});
}

}  // namespace fo::oracle
