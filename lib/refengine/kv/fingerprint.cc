#include "refengine/kv/fingerprint.h"

#include <algorithm>
#include <span>

#include "gms/protocol/sha256.h"

namespace fo::refengine {

std::string fingerprint_of(const ModelConfig& config, const WeightView& weights) {
  gms::Sha256 hash;
  const auto add_text = [&hash](std::string text) {
    text += '\0';
    hash.add(std::as_bytes(std::span(text)));
  };
  add_text(format_model_config(config));
  for (const auto& [name, tensor] : weights) {
    add_text(name);
    add_text(std::string(torch_dtype_name(tensor.dtype)));
    std::size_t bytes = dtype_size(tensor.dtype);
    for (const std::uint64_t extent : tensor.shape) {
      add_text(std::to_string(extent));
      bytes *= extent;
    }
    hash.add(std::span(tensor.data, std::min(bytes, kFingerprintBytes)));
  }
  return hash.finish();
}

}  // namespace fo::refengine
