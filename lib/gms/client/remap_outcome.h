// How an attempt to wake on a published layout can end, for those who map it and those who only
// ask.
#pragma once

#include <string>

#include "base/error.h"

namespace fo::gms {

enum class RemapResult {
  kOk,
  kTimedOut,          // no lock in time: a writer is at work, or nothing is published
  kStaleLayout,       // another layout than the one that was unmapped
  kConnectionFailed,  // no server, or it went away
};

struct RemapOutcome {
  RemapResult result = RemapResult::kOk;
  /// One line for people; empty for kOk.
  std::string reason;
};

/// Nobody got a reader's lock. `what` begins the reason, here and below.
RemapOutcome no_lock_in_time(const std::string& what);

/// kOk when the layout `found` is the one `wanted`, or any is (empty); else a stale one.
RemapOutcome compare_layouts(const std::string& what, const std::string& found,
                             const std::string& wanted);

/// The outcome that `error`, which is being handled, stands for; throws it, or what it means, when
/// it is none.
RemapOutcome outcome_of(const base::Error& error);

}  // namespace fo::gms
