#include "json/option.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace fo::json {

bool is_too_much_json(std::string_view text) {
  constexpr std::ptrdiff_t kMaxBrackets = 256;
  constexpr std::size_t kMaxBytes = 8192;
  if (text.size() > kMaxBytes) return true;
  return std::count(text.begin(), text.end(), '{') + std::count(text.begin(), text.end(), '[') >
         kMaxBrackets;
}

std::optional<nlohmann::ordered_json> read_json_object(std::string_view text) {
  if (is_too_much_json(text)) return std::nullopt;
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

}  // namespace fo::json
