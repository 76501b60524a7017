// The members of a record's JSON object. One that is missing or null is absent; one of another type
// throws json::Misfit. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace fo::fleet {

std::optional<std::string> find_text(const nlohmann::json& object, const char* name);
/// A non-negative integer.
std::optional<std::uint64_t> number_in(const nlohmann::json& object, const char* name);
/// Throws Misfit if it is absent.
std::string needed_text(const nlohmann::json& object, const char* name);

}  // namespace fo::fleet
