// A GPU error of the kernel's log as one line of JSON. Pure.
#pragma once

#include <string>

#include "canary/xid/kernel_log.h"
#include "canary/xid/xid.h"

namespace fo::canary {

/// Returns an object with "bus_id", "xid", "class", "advice" and "text"; and, if they are known,
/// "name", "pid", "process", "gpu_instance", "compute_instance", "uptime" in seconds, and "time".
std::string to_json(const Xid& xid, const KernelMessage& message);

}  // namespace fo::canary
