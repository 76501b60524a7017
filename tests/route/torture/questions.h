// What the clients of the torture ask, drawn at random.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "route/torture/transcript.h"

namespace fo::torture {

/// The models of the engines of fo-oracle.
inline const std::array<std::string, 2> kModels{"single", "pieces"};
/// The name of the folder of fo-refengine's model.
inline const std::string kRefengineModel = "model";

using Random = std::mt19937_64;
inline std::uint64_t pick(Random& random, std::uint64_t from, std::uint64_t to) {
  return std::uniform_int_distribution<std::uint64_t>(from, to)(random);
}

struct Question {
  std::string path;
  nlohmann::json body;
  /// Of an undisturbed engine.
  Transcript expected = {};

  [[nodiscard]] bool is_stream() const { return body.at("stream").get<bool>(); }
};

/// A question for an engine of fo-oracle.
inline Question make_question(Random& random) {
  using nlohmann::json;
  const auto one_of = [&](std::uint64_t count) { return pick(random, 1, count) == 1; };
  const std::string& model = kModels[pick(random, 0, 1)];
  const bool is_chat = one_of(2);
  const std::string text = "Question " + std::to_string(pick(random, 0, 1'000'000'000));
  json body{{"model", model}, {"stream", !one_of(3)}};
  if (is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", text}}};
  } else {
    body["prompt"] = text;
  }
  // Without a limit, the context of the model ends a chat.
  if (!is_chat || !one_of(4)) body["max_tokens"] = pick(random, 16, 100);
  if (body["stream"] && !one_of(3)) {
    body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", one_of(2)}};
  }
  // Without a card the router does not know the ids that an answer's text lacks, and an answer with
  // one in its middle cannot continue.
  if (one_of(3)) body.update({{"skip_special_tokens", false}, {"ignore_eos", true}});
  if (one_of(4)) body["logit_bias"] = {{"300", 1.5}};
  if (one_of(4)) body["repetition_penalty"] = 1.2;
  if (one_of(4)) body.update({{"temperature", 0.8}, {"top_p", 0.9}, {"top_k", 20}});
  if (one_of(4)) body["stop_token_ids"] = {pick(random, 266, 400), pick(random, 266, 400)};
  if (model == "single") {
    // Of two that one token completes, the engine takes the first in the list, the router that
    // which is complete first.
    if (one_of(3)) body["stop"] = {"never in the text", one_of(2) ? "e" : "th"};
    if (body.contains("stop")) body["min_tokens"] = pick(random, 1, 16);
    if (body.contains("stop") && one_of(2)) body["include_stop_str_in_output"] = true;
    if (one_of(3)) body["return_token_ids"] = true;
    // With stop strings, the oracle's offsets are those of the text that it has not held back.
    const bool may_score = !is_chat && !body.contains("stop");
    if (may_score && one_of(2)) body["logprobs"] = pick(random, 0, 3);
  }
  return {is_chat ? "/v1/chat/completions" : "/v1/completions", body};
}

/// A question for fo-refengine. Its answer has letters and spaces only: the tokens of its model are
/// bytes, most of which are not characters.
inline Question make_refengine_question(Random& random) {
  using nlohmann::json;
  const auto one_of = [&](std::uint64_t count) { return pick(random, 1, count) == 1; };
  const bool is_chat = one_of(2);
  const std::string text = "Question " + std::to_string(pick(random, 0, 1'000'000'000));
  json body{{"model", kRefengineModel},
            {"stream", !one_of(3)},
            {"max_tokens", pick(random, 16, 200)},
            {"allowed_token_ids", {' '}}};
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    if (!one_of(3)) body["allowed_token_ids"].push_back(letter);
  }
  if (is_chat) {
    body["messages"] = {{{"role", "user"}, {"content", text}}};
  } else {
    body["prompt"] = text;
    if (one_of(4)) body["logprobs"] = pick(random, 0, 3);
  }
  if (body["stream"] && !one_of(3)) body["stream_options"] = {{"include_usage", true}};
  // The engine names its tokens in any case, the router only if the client asks for that.
  body["return_token_ids"] = true;
  if (one_of(3)) body.update({{"temperature", 0.8}, {"seed", random() >> 1}, {"top_p", 1e-6}});
  if (one_of(4)) body["logit_bias"] = {{std::to_string('e'), 0.5}};
  if (!body.contains("logprobs") && one_of(4)) {
    body.update({{"stop", {"never in the text", "e"}}, {"min_tokens", pick(random, 1, 16)}});
  }
  return {is_chat ? "/v1/chat/completions" : "/v1/completions", body};
}

}  // namespace fo::torture
