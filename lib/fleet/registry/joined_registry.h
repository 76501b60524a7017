// A registry whose workers are registered elsewhere, such as in Kubernetes, and are only read. All
// other records are in a second registry, the state registry, which may have further cards.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// `uri` is that of the workers, for messages. Changes of workers throw kNotPermitted. A listing of
/// workers and other records has the workers also if the state registry is unreachable, with a
/// warning in the log.
std::unique_ptr<Registry> make_joined_registry(std::string uri,
                                               std::unique_ptr<RecordReader> workers,
                                               std::unique_ptr<Registry> state);

}  // namespace fo::fleet
