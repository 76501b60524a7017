// A registry in a folder of one machine, or of a volume that the containers of a pod share. It
// needs no server and no clock: the kernel releases the lock beside a record when its process ends.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// The folder is opened by the first call, and created by those that write or watch. Calls throw
/// kNotPermitted for a folder that other users may write to, kUnavailable for one that does not
/// exist, and the status of the errno. A watch reports all workers as stale while a folder cannot
/// be read.
std::unique_ptr<Registry> make_dir_registry(std::string path);

}  // namespace fo::fleet
