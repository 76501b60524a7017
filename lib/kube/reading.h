// Reads members of the API server's objects, in addition to the functions of json/object.h.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "kube/api.h"

namespace fo::kube {

/// A number of at most 32 bits, not negative; nullopt if it is missing or null. Throws json::Misfit
/// for any other value.
std::optional<std::uint64_t> number_in(const nlohmann::json& object, const char* key);

/// The object, after a check that it is of this kind and has a name and a resource version.
Object decode_object(const nlohmann::json& object, const Resource& resource);

}  // namespace fo::kube
