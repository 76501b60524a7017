// A thread's wait for a moment, where there is nothing else to wait for.
#pragma once

#include <poll.h>

#include "base/deadline.h"

namespace fo::os {

/// At most until `deadline`. A signal ends it early.
inline void pause_for(base::Duration time,
                      const base::Deadline& deadline = base::Deadline::never()) {
  ::poll(nullptr, 0, base::Deadline::after(time).sooner(deadline).poll_timeout());
}

}  // namespace fo::os
