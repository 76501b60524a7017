// What comes on a descriptor until its end, bounded.
#pragma once

#include <string>

#include "base/strong.h"

namespace fo::os {

/// Everything up to the end. `what` says what is read: "read 'path'". Throws with the errno's
/// status, and kBadData when there is more than `limit`.
std::string read_all(int fd, const std::string& what, base::ByteCount limit);

}  // namespace fo::os
