#include "kube/reading.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::kube {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxNumber = 0x7fffffff;

}  // namespace

std::optional<std::uint64_t> number_in(const json& object, const char* key) {
  const json* found = fo::json::find(object, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number_unsigned() || found->get<std::uint64_t>() > kMaxNumber) {
    throw fo::json::Misfit(std::string(key) + ": expected a number from 0 to 2147483647");
  }
  return found->get<std::uint64_t>();
}

}  // namespace fo::kube
