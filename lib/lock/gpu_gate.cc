#include "lock/gpu_gate.h"

#include <poll.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
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

bool is_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

std::optional<os::Captured> run_helper(const std::vector<std::string>& argv,
                                       const base::Deadline& deadline, int interrupt_fd) {
  try {
    return os::run_captured(argv, deadline, interrupt_fd);
  } catch (const Error& error) {
    // 126 and 127 are for the command that is to run under the lock.
    throw Error(ExitStatus::kUnavailable, error.what());
  }
}

}  // namespace

bool GpuGate::prepare(int interrupt_fd) {
  ask(base::Duration::zero(), interrupt_fd);
  if (is_readable(interrupt_fd)) return false;
  if (uuid_.empty()) throw Error(ExitStatus::kUnavailable, what() + ": no answer in time");
  return true;
}

std::string GpuGate::what() const {
  return "ask for the free memory of device " + std::to_string(device_);
}

std::vector<std::string> GpuGate::question(base::Duration time) const {
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
  return argv;
}

bool GpuGate::ask(base::Duration time, int interrupt_fd) {
  const auto answer = run_helper(
      question(time), base::Deadline::after(time + (uuid_.empty() ? kStartTime : kAnswerTime)),
      interrupt_fd);
  if (!answer) {
    if (!uuid_.empty() && !is_readable(interrupt_fd)) {
      os::log(os::LogLevel::kWarning, "{}: no answer in time", what());
    }
    return false;
  }
  return hear(*answer);
}

bool GpuGate::hear(const os::Captured& answer) {
  const bool enough = answer.status == base::to_int(ExitStatus::kOk);
  if (!enough && answer.status != base::to_int(ExitStatus::kTryAgain)) {
    // The helper's own line says why; it is ours now.
    std::string reason = answer.err.substr(0, answer.err.find('\n'));
    const std::string prefix = "fo-gpu: error: ";
    if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
    const bool ours = answer.status <= base::to_int(ExitStatus::kConfig);
    throw Error(ours ? static_cast<ExitStatus>(answer.status) : ExitStatus::kSoftware,
                what() + ": " +
                    (reason.empty() ? "fo-gpu ended with status " + std::to_string(answer.status)
                                    : reason));
  }
  try {
    const auto object = nlohmann::json::parse(answer.out);
    free_ = object.at("free").get<base::ByteCount>();
    uuid_ = object.at("uuid").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitStatus::kSoftware, what() + ": fo-gpu gave no answer");
  }
  return enough;
}

GpuGate::Outcome GpuGate::wait(FailoverLock& lock, const base::Deadline& deadline,
                               int interrupt_fd) {
  for (;;) {
    const base::Duration left = deadline.remaining().value_or(kSlice);
    const bool enough = ask(std::min(left, kSlice), interrupt_fd);
    if (is_readable(interrupt_fd)) return Outcome::kInterrupted;
    if (lock.check()) return Outcome::kLost;
    if (enough) return Outcome::kFree;
    if (deadline.expired()) return Outcome::kDeadline;
  }
}

std::string GpuGate::describe() const {
  return "device " + std::to_string(device_) + " has " + base::format_size(free_) +
         " free of the " + base::format_size(wanted_) + " wanted";
}

}  // namespace fo::lock
