#include "lock/gpu_gate.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "os/log.h"
#include "os/sibling.h"

namespace fo::lock {
namespace {

using base::Error;
using base::ExitStatus;

// How long the helper waits by itself before the lock and the signals are looked at again.
constexpr base::Duration kSlice = std::chrono::milliseconds(250);
// Beyond that, for a driver that is slow: to start, and to answer. One that hangs is asked again.
constexpr base::Duration kStartTime = std::chrono::seconds(30);
constexpr base::Duration kAnswerTime = std::chrono::seconds(5);

}  // namespace

GpuGate::GpuGate(base::ByteCount wanted, int device) : wanted_(wanted), device_(device) {
  ask(base::Duration::zero());
}

bool GpuGate::ask(base::Duration time) {
  std::vector<std::string> argv{os::find_sibling("fo-gpu"),
                                "free",
                                "--device",
                                std::to_string(device_),
                                "--until-free",
                                std::to_string(wanted_),
                                "--timeout",
                                base::format_duration(time)};
  if (!uuid_.empty()) {
    argv.emplace_back("--uuid");
    argv.push_back(uuid_);
  }
  const base::Duration limit = time + (uuid_.empty() ? kStartTime : kAnswerTime);
  const auto answer = os::run_captured(argv, base::Deadline::after(limit));
  const std::string what = "ask for the free memory of device " + std::to_string(device_);
  if (!answer) {
    if (uuid_.empty()) throw Error(ExitStatus::kUnavailable, what + ": no answer in time");
    os::log(os::LogLevel::kWarning, "{}: no answer in time", what);
    return false;
  }
  const bool enough = answer->status == base::to_int(ExitStatus::kOk);
  if (!enough && answer->status != base::to_int(ExitStatus::kTryAgain)) {
    // The helper's own line says why; it is ours now.
    std::string reason = answer->err.substr(0, answer->err.find('\n'));
    const std::string prefix = "fo-gpu: error: ";
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
    const bool ours = answer->status <= base::to_int(ExitStatus::kConfig);
    throw Error(ours ? static_cast<ExitStatus>(answer->status) : ExitStatus::kSoftware,
                what + ": " +
                    (reason.empty() ? "fo-gpu ended with status " + std::to_string(answer->status)
                                    : reason));
  }
  try {
    const auto object = nlohmann::json::parse(answer->out);
    free_ = object.at("free").get<base::ByteCount>();
    uuid_ = object.at("uuid").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitStatus::kSoftware, what + ": fo-gpu gave no answer");
  }
  return enough;
}

GpuGate::Outcome GpuGate::wait(FailoverLock& lock, const base::Deadline& deadline,
                               int interrupt_fd) {
  for (;;) {
    const base::Duration left = deadline.remaining().value_or(kSlice);
    if (ask(std::min(left, kSlice))) return Outcome::kFree;
    pollfd interrupt{interrupt_fd, POLLIN, 0};
    if (::poll(&interrupt, 1, 0) > 0) return Outcome::kInterrupted;
    if (lock.check()) return Outcome::kLost;
    if (deadline.expired()) return Outcome::kDeadline;
  }
}

std::string GpuGate::describe() const {
  return "device " + std::to_string(device_) + " has " + base::format_size(free_) +
         " free of the " + base::format_size(wanted_) + " wanted";
}

}  // namespace fo::lock
