// The Llama decoder again, from its definition, in double precision and as slowly as can be: every
// position is computed from scratch, nothing is cached, nothing is shared with lib/refengine but
// the config's numbers. And a model folder read back by hand.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "refengine/model_config.h"
#include "refengine/transformer.h"

namespace fo::test {

/// A model folder in memory.
struct LoadedModel {
  refengine::ModelConfig config;
  std::map<std::string, std::vector<std::byte>> bytes;
  refengine::WeightView weights;
};

/// Reads a folder that make-model wrote, one safetensors file or many. Fails the test on anything
/// that a strict safetensors reader would refuse.
LoadedModel load_model(const std::string& dir);

/// The logits after the last of `tokens`.
std::vector<double> reference_logits(const LoadedModel& model,
                                     const std::vector<refengine::TokenId>& tokens);

/// What greedy decoding says after `tokens`, `count` of them (no eos).
std::vector<refengine::TokenId> reference_tokens(const LoadedModel& model,
                                                 std::vector<refengine::TokenId> tokens,
                                                 std::size_t count);

}  // namespace fo::test
