#include "engine/device_gate.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/error.h"
#include "engine/children.h"
#include "os/log.h"

namespace fo::engine {
namespace {

using base::ByteCount;
using base::Deadline;
using boost::asio::awaitable;

// How long the helper waits by itself before it is asked anew.
constexpr base::Duration kSlice = std::chrono::milliseconds(250);
// For a driver that is slow to start, and one that is slow to answer.
constexpr base::Duration kStartTime = std::chrono::seconds(30);
constexpr base::Duration kAnswerTime = std::chrono::seconds(5);

awaitable<std::optional<os::Captured>> run_helper(Children& children, std::vector<std::string> argv,
                                                  Deadline deadline) {
  try {
    co_return co_await children.run_captured(std::move(argv), deadline);
  } catch (const base::Error& error) {
    // 126 and 127 are for the engine.
    throw base::Error(base::ExitStatus::kUnavailable, error.what());
  }
}

}  // namespace

DeviceGate::DeviceGate(Children& children, std::vector<int> devices,
                       std::optional<ByteCount> wanted)
    : children_(children),
      devices_(std::move(devices)),
      is_given_(wanted.has_value()),
      wanted_(devices_.size(), wanted.value_or(0)) {}

awaitable<std::optional<std::vector<ByteCount>>> DeviceGate::measure() {
  std::vector<ByteCount> free;
  asked_.clear();
  try {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      lock::GpuMemory memory(0, devices_[i]);
      const Deadline deadline = Deadline::after(kStartTime);
      std::vector<std::string> argv = memory.question(base::Duration::zero());
      const auto answer = co_await run_helper(children_, std::move(argv), deadline);
      if (!answer) {
        throw base::Error(base::ExitStatus::kUnavailable, "ask for the free memory of device " +
                                                              std::to_string(devices_[i]) +
                                                              ": no answer in time");
      }
      memory.hear(*answer);
      free.push_back(memory.free());
      asked_.push_back(std::move(memory));
    }
  } catch (const base::Error& error) {
    asked_.clear();
    if (is_given_) throw;
    os::log(os::LogLevel::kWarning, "no memory gate: {}", error.what());
    co_return std::nullopt;
  }
  co_return free;
}

awaitable<void> DeviceGate::before_sleep() {
  if (is_given_) co_return;
  const std::optional<std::vector<ByteCount>> free = co_await measure();
  free_before_ = free.value_or(std::vector<ByteCount>{});
}

awaitable<void> DeviceGate::after_sleep() {
  if (is_given_ && (wanted_.empty() || wanted_.front() == 0)) co_return;
  if (!is_given_ && free_before_.empty()) co_return;
  const auto free = co_await measure();
  if (is_given_ || !free) co_return;
  // An engine that slept already gave nothing back, and what it gave before still counts.
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    wanted_[i] = std::max(wanted_[i], (*free)[i] - std::min((*free)[i], free_before_[i]));
  }
}

bool DeviceGate::is_known() const {
  return is_given_ ||
         std::any_of(wanted_.begin(), wanted_.end(), [](ByteCount wanted) { return wanted > 0; });
}

awaitable<bool> DeviceGate::wait(Deadline deadline) {
  bool any = false;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    if (wanted_[i] == 0) continue;
    any = true;
    lock::GpuMemory memory = i < asked_.size() ? asked_[i] : lock::GpuMemory(0, devices_[i]);
    memory.want(wanted_[i]);
    bool enough = false;
    while (!enough) {
      const base::Duration time = std::min(kSlice, deadline.remaining().value_or(kSlice));
      const Deadline answer_by = Deadline::after(time + kAnswerTime);
      std::vector<std::string> argv = memory.question(time);
      const auto answer = co_await run_helper(children_, std::move(argv), answer_by);
      enough = answer && memory.hear(*answer);
      if (!enough && deadline.expired()) {
        throw base::Error(base::ExitStatus::kTryAgain,
                          "wait for device memory: " + memory.describe());
      }
    }
  }
  co_return any;
}

}  // namespace fo::engine
