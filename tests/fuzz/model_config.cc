// The inputs of a rank: config.json from a file; its set-up, steps and their results, which
// processes of one program exchange. The first byte selects one.
#include "refengine/model/model_config.h"

#include "fuzz.h"
#include "refengine/frame.h"

namespace fo::refengine {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

void check_config(std::string_view text) {
  const auto config =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_model_config(text, "f"); });
  if (!config) return;
  // Any error is a finding.
  check_model_config(*config, "f");
  const std::string again = format_model_config(*config);
  require(format_model_config(parse_model_config(again, "f")) == again, "what is written is read");
  require(
      config->layers > 64 || model_tensors(*config).size() ==
                                 9 * config->layers + 2u + (config->tie_word_embeddings ? 0u : 1u),
      "every tensor is listed");
}

void check_setup(std::string_view text) {
  const auto setup = unless_refused({ExitStatus::kProtocol, ExitStatus::kBadData},
                                    [&] { return decode_setup(text); });
  if (!setup) return;
  const std::string again = encode_setup(*setup);
  require(encode_setup(decode_setup(again)) == again, "a set-up survives the way");
}

void check_step(std::string_view text) {
  const auto step = unless_refused({ExitStatus::kProtocol}, [&] { return decode_step(text); });
  if (step) require(text.ends_with(step->input), "the input is the rest of the step");
}

void check_result(std::string_view text) {
  const auto result = unless_refused({ExitStatus::kProtocol}, [&] { return decode_result(text); });
  if (!result) return;
  const std::string again = encode_result(*result);
  require(encode_result(decode_result(again)) == again, "a result survives the way");
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(4)) {
    case 0:
      return check_config(input.rest());
    case 1:
      return check_setup(input.rest());
    case 2:
      return check_step(input.rest());
    default:
      return check_result(input.rest());
  }
}

}  // namespace
}  // namespace fo::refengine

FO_FUZZER(fo::refengine::fuzz_one)
