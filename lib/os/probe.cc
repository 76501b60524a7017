#include "os/probe.h"

#include <poll.h>

namespace fo::os {

using base::Deadline;
using base::ExitStatus;

bool is_no(const base::Error& error) {
  const ExitStatus status = error.status();
  return status == ExitStatus::kUnavailable || status == ExitStatus::kTryAgain ||
         status == ExitStatus::kProtocol;
}

void pause_between_questions(const Deadline& deadline) {
  constexpr base::Duration kInterval = std::chrono::milliseconds(50);
  ::poll(nullptr, 0, Deadline::after(kInterval).sooner(deadline).poll_timeout());
}

}  // namespace fo::os
