// Whether the answer to a request can continue on another worker after its first byte, and the
// values of the request that matter for that. This is an allow-list: an answer to a request with an
// unknown field cannot continue, because a continuation would not repeat the field. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "route/request/api_paths.h"

namespace fo::route {

/// Options of the operator.
struct ResumeOptions {
  /// Sampled answers with a seed do not continue: the generator of the new worker starts again, so
  /// the rest would differ from that of an undisturbed answer.
  bool strict_seed = false;
  /// Answers with a frequency penalty continue, with a logit bias in place of the penalty for the
  /// tokens that precede.
  bool penalties = false;
  /// Answers of engines that report no token ids continue, too: after their text, which may
  /// have other tokens.
  bool text = false;
};

/// The fields of a request that matter for a continuation. A field that is missing or null, or
/// whose value is invalid, has the value here.
struct ResumeFacts {
  /// Why the answer cannot continue after its first byte, for people: "'tools': the worker parses
  /// the calls"; empty if it can. The other members are valid in both cases.
  std::string refusal;
  /// The same for an answer of which only the text is known.
  std::string text_refusal;

  /// The stop strings, none of which is empty.
  std::vector<std::string> stops;
  bool include_stop = false;
  std::uint64_t min_tokens = 0;
  /// Limit of one choice; nullopt if the client sets none. "max_completion_tokens" of a chat has
  /// precedence over "max_tokens".
  std::optional<std::uint64_t> max_tokens;
  std::vector<std::uint64_t> stop_ids;
  bool ignore_eos = false;
  std::optional<std::int64_t> seed;
  bool skip_special_tokens = true;
  /// "return_token_ids".
  bool wants_ids = false;
  /// "stream_options": the chunk with the usage, and usage in each chunk.
  bool wants_usage = false;
  bool wants_continuous_usage = false;
  /// The engine does not send the reasoning, or only once all of it is generated, so that the first
  /// token of the answer may be late.
  bool hides_reasoning = false;
  /// The engine may generate tokens for a long time without an event of the stream, because it
  /// hides the reasoning, or waits for the end of a tool call's argument.
  bool may_pause = false;
  /// Only completions have it.
  std::optional<std::uint64_t> logprobs;

  /// Biases by token; of two for the same token the last one counts. They need less than twice the
  /// memory of their text in the body. A continuation adds the bias that replaces a frequency
  /// penalty to them.
  std::vector<std::pair<std::uint32_t, double>> logit_bias;
  /// 0 for none; otherwise `repeated` has it, too: the engine applies the penalty to the tokens
  /// that it generates itself, and the continuation's bias replaces it for the tokens before.
  double frequency_penalty = 0;

  /// Members of a continuation's body as the client gave them, such as
  /// `"temperature":0,"top_p":0.5`: JSON without braces, empty for none. These are the model, the
  /// sampling parameters, the fields of the text (such as "skip_special_tokens"), the constraints
  /// of the tokens (such as "bad_words"), "logprobs" of completions, the cache's salt, and the
  /// priority. The fields whose value depends on the continuation are not among them, and
  /// have members above: "stop", "stop_token_ids", "min_tokens", "max_tokens", "seed",
  /// "logit_bias", "stream_options" and "return_token_ids".
  std::string repeated;
  /// Names of those of "min_p", "repetition_penalty", "temperature", "top_k" and "top_p" that the
  /// client gave: for the others a card's generation config applies.
  std::set<std::string> given;
};

/// The limit of all stop strings together. With longer ones an answer cannot continue, because the
/// router holds and matches them.
inline constexpr std::size_t kMaxStopBytes = 4096;

/// Reads the facts from `body`, a JSON object. Only answers of kChat and kCompletions can continue,
/// and none whose request has an invalid value. Reasoning and the parsers of calls are not checked
/// here, because they depend on the model's card.
///
/// A presence penalty is always refused, because no logit bias replaces it: a token that was
/// generated before and again would be penalized twice.
ResumeFacts read_resume_facts(const nlohmann::json& body, Api api, const ResumeOptions& options);

}  // namespace fo::route
