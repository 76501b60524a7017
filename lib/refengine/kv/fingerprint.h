// A digest that distinguishes models.
#pragma once

#include <string>

#include "refengine/model/transformer.h"

namespace fo::refengine {

/// The SHA-256 of the configuration, and of the name, the type, the shape and the first
/// kFingerprintBytes bytes of each tensor, in hex. Reading all of the weights would delay the
/// start.
inline constexpr std::size_t kFingerprintBytes = 4096;
std::string fingerprint_of(const ModelConfig& config, const WeightView& weights);

}  // namespace fo::refengine
