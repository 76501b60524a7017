// A probe of a lock with the answer yes or no, for probes and entrypoints.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "lock/lock_uri.h"
#include "os/probe.h"

namespace fo::lock {

struct LockProbe {
  LockUri lock;
  /// The lock must be held.
  bool held = false;
  /// This id must hold it.
  std::optional<std::string> holder;
  /// Time for which the query is repeated. A server that was queried in time has its full second to
  /// answer.
  base::Duration wait{};
};

struct LockAnswer : os::ProbeAnswer {
  /// The holder; nullopt if the lock is free or the holder is unknown.
  std::optional<std::string> holder;
};

/// Whether the lock service answers, and the holder is as expected. A server that does not answer
/// means no; failures that are not an answer, such as missing permissions, throw Error.
LockAnswer probe_lock(const LockProbe& probe);

std::string to_json(const LockAnswer& answer);

}  // namespace fo::lock
