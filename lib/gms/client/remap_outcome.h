// The outcomes of an attempt to wake on a published layout, for the mapping itself and for checks.
#pragma once

#include <string>

#include "base/error.h"
#include "gms/protocol/types.h"

namespace fo::gms {

enum class RemapResult {
  kOk,
  kTimedOut,          // no lock in time: a writer is active, or nothing is published
  kStaleLayout,       // the layout is not the one that was unmapped
  kConnectionFailed,  // no server, or the connection was lost
};

struct RemapOutcome {
  RemapResult result = RemapResult::kOk;
  /// One line; empty for kOk.
  std::string reason;
};

/// The reader's lock was not granted in time. `what` begins the reason, here and below.
RemapOutcome no_lock_in_time(const std::string& what);

/// kOk if the layout `found` equals `wanted`, or `wanted` is empty; else kStaleLayout.
RemapOutcome compare_layouts(const std::string& what, const LayoutHash& found,
                             const LayoutHash& wanted);

/// The outcome for `error`, which the caller has caught. If it is not an outcome, rethrows it; a
/// RequestRefused becomes Error(kProtocol).
RemapOutcome outcome_of(const base::Error& error);

}  // namespace fo::gms
