// A thread's wait for a fixed time.
#pragma once

#include <poll.h>

#include "base/deadline.h"

namespace fo::os {

/// Ends early at `deadline`, or when a signal arrives.
inline void pause_for(base::Duration time,
                      const base::Deadline& deadline = base::Deadline::never()) {
  ::poll(nullptr, 0, base::Deadline::after(time).sooner(deadline).poll_timeout());
}

}  // namespace fo::os
