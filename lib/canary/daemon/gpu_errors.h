// Applies errors of GPUs to the workers on them. No I/O; time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "canary/daemon/workers.h"
#include "canary/xid/xid.h"

namespace fo::canary {

using XidCounts = std::map<XidClass, std::uint64_t>;

/// The longest time between an error of a link and a slow check that belong together.
inline constexpr base::Duration kAtOnce = std::chrono::minutes(2);

/// "Xid 79 of GPU 0000:3b:00.0: the GPU has fallen off the bus".
std::string describe(const Xid& xid);

/// Applies an error of a GPU of `host`. A fatal error convicts the workers on the GPU. Any error of
/// a link makes those workers of the host suspicious that were slow at that time. Returns the
/// number of workers on the GPU.
std::size_t find_xid(Workers& workers, const Xid& xid, const std::string& host, const Now& at);

/// To be called when a check of the worker and all its repetitions, each with another canary, were
/// slow. Returns the cause: the interconnect if a link of its host failed at that time, else
/// `cause`.
Cause cause_of_slow(Worker& worker, Cause cause, const Now& at);

}  // namespace fo::canary
