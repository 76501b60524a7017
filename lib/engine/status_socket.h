// The address of an engine's status inside its pod.
#pragma once

#include <string>

#include "lock/lock_uri.h"

namespace fo::engine {

/// The Unix socket beside the lock: "<lock path>.<id>.sock". Throws Error(kConfig) for an id that
/// lock::check_lock_id refuses, and if a slash in the id or a colon anywhere would make a path that
/// is not beside the lock, or that no URL can name.
std::string status_socket_path(const lock::LockUri& lock, const std::string& id);

}  // namespace fo::engine
