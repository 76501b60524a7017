// Core dumps of this process and of what it starts.
#pragma once

namespace fo::os {

/// Headers only from now on, for children too: a core dump keeps descriptors and device memory
/// until it is written. Where the kernel doesn't let us, a log line.
void limit_core_dumps();

}  // namespace fo::os
