// The part of a remap check that needs the driver: mapping a published layout read-only, as an
// engine that wakes would, and reading through the mapping. For the private helper fo-gpu.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/remap_check.h"

namespace fo::gms {

/// Takes a reader's lock, checks the layout's hash (empty: any will do), maps every allocation and
/// reads a byte of each of its granules and its last one. Makes a primary context for the copies.
/// Outcomes as check_remap has them. Throws CudaError when the device fails, OutOfMemory when there
/// is no room for the context.
RemapCheck map_and_read(const std::shared_ptr<const cuda::Driver>& driver,
                        const cuda::DeviceInfo& device, const std::string& socket,
                        const std::string& expect_hash, const base::Deadline& deadline);

}  // namespace fo::gms
