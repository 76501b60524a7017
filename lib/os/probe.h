// Shared by all probes: repeats a question until the answer is yes or the time is over, and decides
// which failures count as no.
#pragma once

#include <chrono>
#include <string>

#include "base/deadline.h"
#include "base/error.h"
#include "os/pause.h"

namespace fo::os {

/// The default timeout of one answer.
inline constexpr base::Duration kProbeTime = std::chrono::seconds(1);

/// The times of a probe that repeats a query.
struct ProbeTimes {
  /// The time of one query, from its start to its last byte.
  base::Duration timeout{};
  /// Time for which a failed query is repeated. A query that began in time has its full timeout.
  base::Duration wait{};
};

/// The part that the answers of all probes have in common.
struct ProbeAnswer {
  bool yes = false;
  /// If the answer is no: the reason in one line.
  std::string reason;
};

/// Whether a failure counts as the answer no: no server, no answer in time, or an invalid answer.
bool is_no(const base::Error& error);

/// Calls `ask` with a new answer at least once, and again until the answer's `yes` is true or the
/// probe's `wait` is over; returns the last answer. A call that began in time has its own timeout.
/// A failure that counts as no becomes the answer's `reason`; any other is thrown.
template <typename Probe, typename Answer>
Answer ask_until_yes(const Probe& probe, void (*ask)(const Probe&, Answer&)) {
  const auto deadline = base::Deadline::after(probe.wait);
  for (;;) {
    Answer answer;
    try {
      ask(probe, answer);
    } catch (const base::Error& error) {
      if (!is_no(error)) throw;
      answer.reason = error.what();
    }
    if (answer.yes || deadline.expired()) return answer;
    pause_for(std::chrono::milliseconds(50), deadline);
  }
}

}  // namespace fo::os
