// A second implementation of the Llama decoder, by its definition, in double precision and without
// optimisation: every position is computed from scratch, and only the config's numbers are shared
// with lib/refengine. It also reads a model folder back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "refengine/model/model_config.h"
#include "refengine/model/transformer.h"

namespace fo::test {

/// A model folder in memory.
struct LoadedModel {
  refengine::ModelConfig config;
  std::map<std::string, std::vector<std::byte>> bytes;
  refengine::WeightView weights;
};

/// Reads a folder that make-model wrote with the strict reader of lib/weights. Fails the test for a
/// tensor that is not aligned.
LoadedModel load_model(const std::string& dir);

/// The logits after the last of `tokens`.
std::vector<double> reference_logits(const LoadedModel& model,
                                     const std::vector<refengine::TokenId>& tokens);

/// The `count` tokens of greedy decoding after `tokens` (no eos).
std::vector<refengine::TokenId> reference_tokens(const LoadedModel& model,
                                                 std::vector<refengine::TokenId> tokens,
                                                 std::size_t count);

}  // namespace fo::test
