// Converts the status answer of a gms-lockd, from its socket or its port, to a LockStatus.
#pragma once

#include <string>
#include <string_view>

#include "lock/lock_status.h"
#include "lock/lockd/lockd_protocol.h"

namespace fo::lock {

/// Parses the answer `line`. Throws "`what`: reason": a refusal with its status, kProtocol for any
/// other answer, and decode_answer's errors.
StatusAnswer status_in(std::string_view line, const std::string& what);

/// The lock status for the answer of the server at `path`. `visible` means that it shares our pid
/// namespace, so that its pids are valid here.
LockStatus status_of(const std::string& path, const StatusAnswer& reported, bool visible);

}  // namespace fo::lock
