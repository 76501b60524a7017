#include "refengine/kv/fingerprint.h"

#include <gtest/gtest.h>

namespace fo::refengine {
namespace {

TEST(Fingerprint, TellsModelsApart) {
  std::vector<std::byte> data(2 * kFingerprintBytes);
  ModelConfig config;
  config.vocab_size = 258;
  const auto tensor = [&data](std::uint64_t rows) {
    return TensorView{DType::kF32, {rows, 4}, data.data()};
  };
  const std::string first = fingerprint_of(config, {{"a", tensor(8)}});
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(fingerprint_of(config, {{"a", tensor(8)}}), first);
  EXPECT_NE(fingerprint_of(config, {{"b", tensor(8)}}), first);
  EXPECT_NE(fingerprint_of(config, {{"a", tensor(4)}}), first);
  config.rope_theta *= 2;
  EXPECT_NE(fingerprint_of(config, {{"a", tensor(8)}}), first);
  config.rope_theta /= 2;
  data[8 * 4 * 4] = std::byte{1};
  EXPECT_EQ(fingerprint_of(config, {{"a", tensor(8)}}), first) << "this byte is not the tensor's";
  data[8 * 4 * 4 - 1] = std::byte{1};
  EXPECT_NE(fingerprint_of(config, {{"a", tensor(8)}}), first);
}

TEST(Fingerprint, ReadsTheBeginningOfALargeTensor) {
  std::vector<std::byte> data(2 * kFingerprintBytes);
  const WeightView weights{{"a", {DType::kF16, {kFingerprintBytes}, data.data()}}};
  const std::string first = fingerprint_of({}, weights);
  data[kFingerprintBytes] = std::byte{1};
  EXPECT_EQ(fingerprint_of({}, weights), first);
  data[kFingerprintBytes - 1] = std::byte{1};
  EXPECT_NE(fingerprint_of({}, weights), first);
}

}  // namespace
}  // namespace fo::refengine
