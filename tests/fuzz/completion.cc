// The JSON bodies of the reference engine's requests. The first byte selects one.
#include <algorithm>
#include <optional>

#include "fuzz.h"
#include "refengine/completion_request.h"

namespace fo::refengine {
namespace {

using fuzz::require;

ModelConfig small_config() {
  ModelConfig config;
  config.vocab_size = 258;
  config.bos = 256;
  config.eos = {257};
  return config;
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
  static const ModelConfig config = small_config();
  const auto request =
      unless_refused([&] { return parse_completion(endpoint, body, config, "m", 99); });
  if (!request) return;
  const GenerationOptions& options = request->options;
  const auto is_known = [](TokenId token) { return token < config.vocab_size; };
  require(std::all_of(request->prompt.begin(), request->prompt.end(), is_known) &&
              std::all_of(options.stop_tokens.begin(), options.stop_tokens.end(), is_known),
          "every token is in the vocabulary");
  require(options.stop_tokens.size() <= kMaxStopTokens && request->stops.size() <= kMaxStops,
          "there are few stops");
  for (const std::string& stop : request->stops) {
    require(!stop.empty() && stop.size() <= kMaxStopBytes, "a stop is short, and can come");
  }
  require(!options.max_tokens || *options.max_tokens > 0, "a token is wanted");
  const Sampling& sampling = options.sampling;
  require(sampling.temperature >= 0 && sampling.temperature <= 2, "a temperature is in its range");
  require(sampling.top_p > 0 && sampling.top_p <= 1, "a share is in its range");
  require(sampling.logprobs >= -1 && sampling.logprobs <= 20, "few probabilities are told");
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(3)) {
    case 0:
      return check_completion(Endpoint::kCompletions, input.rest());
    case 1:
      return check_completion(Endpoint::kChat, input.rest());
    default:
      static_cast<void>(unless_refused([&] { return parse_rpc_method(input.rest()); }));
  }
}

}  // namespace
}  // namespace fo::refengine

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fo::refengine::fuzz_one({data, size});
  return 0;
}
