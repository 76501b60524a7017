// The JSON bodies of the reference engine's requests. The first byte selects one.
#include <algorithm>
#include <optional>

#include "fuzz.h"
#include "refengine/api/completion_request.h"
#include "refengine/api/prompt.h"

namespace fo::refengine {
namespace {

using fuzz::require;

const ModelConfig& small_config() {
  static const ModelConfig config = [] {
    ModelConfig made;
    made.vocab_size = 258;
    made.bos = 256;
    made.eos = {257};
    return made;
  }();
  return config;
}

bool are_known(const std::vector<TokenId>& tokens) {
  return std::ranges::all_of(tokens,
                             [](TokenId token) { return token < small_config().vocab_size; });
}

template <typename Parse>
auto unless_refused(const Parse& parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const ApiError& error) {
    require(error.status() == 400 || error.status() == 404, "a refusal blames the request");
    require(*error.what() != '\0', "a refusal has a reason");
    return std::nullopt;
  }
}

void check_completion(Endpoint endpoint, std::string_view body) {
  const auto request =
      unless_refused([&] { return parse_completion(endpoint, body, small_config(), "m", 99); });
  if (!request) return;
  const GenerationOptions& options = request->options;
  require(are_known(request->prompt) && are_known(options.stop_tokens) &&
              are_known(options.constraints.allowed) &&
              std::ranges::all_of(options.bad_words, are_known),
          "every token is in the vocabulary");
  for (const auto& [token, bias] : options.constraints.biases) {
    require(token < small_config().vocab_size, "every bias is of a token in the vocabulary");
    require(bias >= -100 && bias <= 100, "a bias is in its range");
  }
  require(options.stop_tokens.size() <= kMaxStopTokens && request->text.stops.size() <= kMaxStops &&
              options.bad_words.size() <= kMaxBadWords,
          "there are few stops and bad words");
  for (const std::string& stop : request->text.stops) {
    require(!stop.empty() && stop.size() <= kMaxStopBytes, "a stop is short, and not empty");
  }
  for (const std::vector<TokenId>& word : options.bad_words) {
    require(!word.empty() && word.size() <= kMaxStopBytes, "a bad word is short, and not empty");
  }
  require(!options.max_tokens || *options.max_tokens > 0 || request->echo, "a token is wanted");
  require(options.prompt_logprobs <= 20 &&
              (!request->stream || request->echo || options.prompt_logprobs < 0),
          "a stream has no probabilities of its prompt without an echo");
  const Sampling& sampling = options.sampling;
  require(sampling.temperature >= 0 && sampling.temperature <= 2, "a temperature is in its range");
  require(sampling.top_p > 0 && sampling.top_p <= 1, "a share is in its range");
  require(sampling.logprobs >= -1 && sampling.logprobs <= 20, "few probabilities are reported");
}

void check_tokenize(std::string_view body) {
  const auto request = unless_refused([&] { return parse_tokenize(body, small_config(), "m"); });
  require(!request || are_known(request->tokens), "every token is in the vocabulary");
}

void check_detokenize(std::string_view body) {
  const auto tokens = unless_refused([&] { return parse_detokenize(body, small_config(), "m"); });
  require(!tokens || are_known(*tokens), "every token is in the vocabulary");
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(5)) {
    case 0:
      return check_completion(Endpoint::kCompletions, input.rest());
    case 1:
      return check_completion(Endpoint::kChat, input.rest());
    case 2:
      static_cast<void>(unless_refused([&] { return parse_rpc_method(input.rest()); }));
      return;
    case 3:
      return check_tokenize(input.rest());
    default:
      return check_detokenize(input.rest());
  }
}

}  // namespace
}  // namespace fo::refengine

FO_FUZZER(fo::refengine::fuzz_one)
