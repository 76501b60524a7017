#include "fleet/record/record_members.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "json/object.h"

namespace fo::fleet {

std::optional<std::string> find_text(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const value = fo::json::find(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw fo::json::Misfit(std::string(name) + " is not a text");
  return value->get<std::string>();
}

std::optional<std::uint64_t> number_in(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const value = fo::json::find(object, name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned()) {
    throw fo::json::Misfit(std::string(name) + " is not a whole number");
  }
  return value->get<std::uint64_t>();
}

std::string needed_text(const nlohmann::json& object, const char* name) {
  std::optional<std::string> text = find_text(object, name);
  if (!text) throw fo::json::Misfit(std::string("without ") + name);
  return std::move(*text);
}

}  // namespace fo::fleet
