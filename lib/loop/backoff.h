// Computes the pauses between attempts, which double up to a limit. It does not wait.
#pragma once

#include <random>

#include "base/error.h"
#include "base/units.h"

namespace fo::loop {

/// True for an error that another attempt may not meet: the peer is down, busy or late
/// (kUnavailable, kTryAgain).
bool is_transient(const base::Error& error);

class Backoff {
 public:
  /// The first pause and the longest, both above 0.
  Backoff(base::Duration first, base::Duration longest);

  /// The next pause, which doubles each time: a random part of it, at least half, so that many
  /// clients that failed at once do not retry at once.
  base::Duration next();
  /// To be called after a success: the pauses begin with the first one again.
  void reset() { pause_ = first_; }

 private:
  base::Duration first_;
  base::Duration longest_;
  base::Duration pause_;
  std::minstd_rand random_;
};

}  // namespace fo::loop
