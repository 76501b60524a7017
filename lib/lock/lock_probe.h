// A probe of a lock: a question with the answer yes or no, for probes and entrypoints.
#pragma once

#include <optional>
#include <string>

#include "base/units.h"
#include "lock/lock_uri.h"

namespace fo::lock {

struct LockProbe {
  LockUri lock;
  /// Somebody must hold it.
  bool held = false;
  /// This one must hold it.
  std::optional<std::string> holder;
  /// How long to go on asking. A server that was asked in time has its second to answer.
  base::Duration wait{};
};

struct LockAnswer {
  bool yes = false;
  /// Who holds it; nullopt when nobody does, or nobody could tell.
  std::optional<std::string> holder;
  /// For no: one line.
  std::string reason;
};

/// Whether the lock can be asked for its holder, and that one is as wanted. A server that does not
/// answer is a no; what is no answer, such as permissions, throws Error.
LockAnswer probe_lock(const LockProbe& probe);

std::string to_json(const LockAnswer& answer);

}  // namespace fo::lock
