// Members of the API server's objects: those that are left out, and null, are empty. What has
// another type is thrown as json::Misfit.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "kube/api.h"

namespace fo::kube {

const nlohmann::json& part_in(const nlohmann::json& object, const char* key);
std::string text_in(const nlohmann::json& object, const char* key);
/// Of 32 bits, not below 0.
std::optional<std::uint64_t> number_in(const nlohmann::json& object, const char* key);

/// The object, checked to be of that kind and to have a name and a resource version.
Object decode_object(const nlohmann::json& object, const Resource& resource);

}  // namespace fo::kube
