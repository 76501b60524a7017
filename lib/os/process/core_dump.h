// Limits the core dumps of this process and its children.
#pragma once

namespace fo::os {

/// From now on, core dumps of this process and its children contain headers only: writing a full
/// dump would keep descriptors and device memory open meanwhile. Logs a line if the kernel refuses.
void limit_core_dumps();

}  // namespace fo::os
