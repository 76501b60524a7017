// Members of the API server's objects. Missing members and null are read as empty; a member of
// another type throws json::Misfit.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "kube/api.h"

namespace fo::kube {

const nlohmann::json& part_in(const nlohmann::json& object, const char* key);
std::string text_in(const nlohmann::json& object, const char* key);
/// A number of at most 32 bits, not negative; nullopt if it is missing.
std::optional<std::uint64_t> number_in(const nlohmann::json& object, const char* key);

/// The object, after a check that it is of this kind and has a name and a resource version.
Object decode_object(const nlohmann::json& object, const Resource& resource);

}  // namespace fo::kube
