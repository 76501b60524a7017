// Reads a descriptor to its end, with a limit.
#pragma once

#include <string>

#include "base/strong.h"

namespace fo::os {

/// All bytes up to the end. `what` is the action: "read 'path'". Throws with the errno's status,
/// and kBadData for more than `limit`.
std::string read_all(int fd, const std::string& what, base::ByteCount limit);

}  // namespace fo::os
