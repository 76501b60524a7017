// The part of a remap check that needs the driver: maps a published layout read-only, as a waking
// engine would, and reads through the mapping. For the private helper fo-gpu.
#pragma once

#include <memory>

#include "base/deadline.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/client/remap_check.h"

namespace fo::gms {

/// Takes a reader's lock, checks the layout's hash, maps every allocation on `device`, and reads a
/// byte of each granule and the last byte. Creates a primary context for the copies. Uses socket,
/// server_uid and expect_hash of the request. Outcomes are those of check_remap. Throws CudaError
/// if the device fails, OutOfMemory if it has no memory for the context.
RemapCheck map_and_read(const std::shared_ptr<const cuda::Driver>& driver,
                        const cuda::DeviceInfo& device, const RemapCheckRequest& request,
                        const base::Deadline& deadline);

}  // namespace fo::gms
