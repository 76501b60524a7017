// What all probes share: a question that is asked until its answer is yes or the time is over, and
// which failures are a no.
#pragma once

#include <chrono>

#include "base/deadline.h"
#include "base/error.h"
#include "os/pause.h"

namespace fo::os {

/// What whoever is asked has for an answer, where nothing else is said.
inline constexpr base::Duration kProbeTime = std::chrono::seconds(1);

/// Whether a failure is an answer, namely no: nobody is there, nobody answers in time, or what they
/// answer is nonsense.
bool is_no(const base::Error& error);

/// What `ask` answers, which is asked at least once, and again until its `yes` is true or `wait` is
/// over. A question that was asked in time has its own time for the answer.
template <typename Ask>
auto ask_until_yes(base::Duration wait, const Ask& ask) {
  const auto deadline = base::Deadline::after(wait);
  for (;;) {
    auto answer = ask();
    if (answer.yes || deadline.expired()) return answer;
    pause_for(std::chrono::milliseconds(50), deadline);
  }
}

}  // namespace fo::os
