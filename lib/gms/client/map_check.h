// The part of a remap check that needs the driver: mapping a published layout read-only, as an
// engine that wakes would, and reading through the mapping. For the private helper fo-gpu.
#pragma once

#include <memory>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/client/remap_check.h"

namespace fo::gms {

/// Takes a reader's lock, checks the layout's hash, maps every allocation on `device` and reads a
/// byte of each of its granules and its last one. Makes a primary context for the copies. Of the
/// request, socket, server_uid and expect_hash count.
/// Outcomes as check_remap has them. Throws CudaError when the device fails, OutOfMemory when there
/// is no room for the context.
RemapCheck map_and_read(const std::shared_ptr<const cuda::Driver>& driver,
                        const cuda::DeviceInfo& device, const RemapCheckRequest& request,
                        const base::Deadline& deadline);

}  // namespace fo::gms
