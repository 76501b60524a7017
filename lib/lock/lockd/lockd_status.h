// What a gms-lockd says of its lock when it is asked for that, whichever way it was asked.
#pragma once

#include <string>
#include <string_view>

#include "lock/lock_status.h"
#include "lock/lockd/lockd_protocol.h"

namespace fo::lock {

/// The answer that `line` is. Throws "`what`: reason": a refusal with its status, kProtocol for any
/// other answer; and decode_answer's.
StatusAnswer status_in(std::string_view line, const std::string& what);

/// The answer of the server at `path` as what can be seen of a lock. `visible`: its pids mean
/// something here, for it shares our pid namespace.
LockStatus status_of(const std::string& path, const StatusAnswer& told, bool visible);

}  // namespace fo::lock
