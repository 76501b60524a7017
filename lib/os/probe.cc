#include "os/probe.h"

namespace fo::os {

using base::ExitStatus;

bool is_no(const base::Error& error) {
  const ExitStatus status = error.status();
  return status == ExitStatus::kUnavailable || status == ExitStatus::kTryAgain ||
         status == ExitStatus::kProtocol;
}

}  // namespace fo::os
