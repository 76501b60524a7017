// A registry whose workers are registered elsewhere, such as in Kubernetes, and are only read. All
// other records are in a second registry, the state registry, which may have further cards.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// `uri` is the URI of `workers`, for messages. A change of a worker throws kNotPermitted. If the
/// state registry is unreachable, a listing that includes workers has only those of `workers`, with
/// a warning in the log, and a watch reports these, and retries the state registry.
std::unique_ptr<Registry> make_joined_registry(std::string uri,
                                               std::unique_ptr<RecordReader> workers,
                                               std::unique_ptr<Registry> state);

}  // namespace fo::fleet
