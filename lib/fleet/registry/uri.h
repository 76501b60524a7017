// Registries by their URI.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

inline constexpr char kDefaultRegistry[] = "dir:/run/fo/registry";

/// "dir:PATH", or "etcd:http[s]://HOST:PORT,.../PREFIX" with the parameters of an etcd lock. Throws
/// kUsage for another URI: "registry 'text': reason".
std::unique_ptr<Registry> make_registry(const std::string& uri);

}  // namespace fo::fleet
