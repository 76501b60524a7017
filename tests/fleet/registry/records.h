// Records for tests of registries.
#pragma once

#include <string>

#include "fleet/record/instance.h"

namespace fo::test {

inline constexpr char kEndpoint[] = "instances/llama/worker/generate/";

inline std::string id_number(int number) {
  const std::string digits = std::to_string(number);
  return std::string(32 - digits.size(), '0') + digits;
}

inline fleet::Record record_number(int number, fleet::Life life = fleet::Life::kReady) {
  const fleet::Instance instance{
      .id = id_number(number), .url = "http://127.0.0.1:8001", .model = "llama", .life = life};
  return {kEndpoint + instance.id, fleet::encode(instance)};
}

}  // namespace fo::test
