#include "engine/device_gate.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "loop/children.h"
#include "loop/pause.h"
#include "os/log.h"

namespace fo::engine {
namespace {

using base::ByteCount;
using base::Deadline;
using boost::asio::awaitable;

// Within this time, memory that a driver, or a GMS with the engine's KV memory, releases late
// becomes free.
constexpr base::Duration kTimeToSettle = std::chrono::seconds(2);
constexpr base::Duration kSettleInterval = std::chrono::milliseconds(50);

// Like GpuMemory::ask, without blocking.
awaitable<std::optional<bool>> ask(loop::Children& children, device::GpuMemory& memory,
                                   base::Duration time) {
  const Deadline answer_by = memory.answer_by(time);
  std::vector<std::string> argv = memory.question(time);
  std::optional<os::Captured> answer;
  try {
    answer = co_await children.run_captured(std::move(argv), answer_by);
  } catch (const base::Error& error) {
    throw device::GpuMemory::unavailable(error.what());
  }
  co_return answer ? std::optional(memory.read_answer(*answer)) : std::nullopt;
}

}  // namespace

DeviceGate::DeviceGate(loop::Children& children, std::vector<base::DeviceOrdinal> devices,
                       std::optional<ByteCount> wanted, std::vector<GmsPlace> kv)
    : children_(children),
      devices_(std::move(devices)),
      kv_(std::move(kv)),
      is_configured_(wanted.has_value()),
      wanted_(devices_.size(), wanted.value_or(0)) {
  for (const base::DeviceOrdinal device : devices_) {
    memory_.emplace_back(wanted.value_or(0), device);
  }
}

awaitable<void> DeviceGate::query_all() {
  for (device::GpuMemory& memory : memory_) {
    const std::optional<bool> answer = co_await ask(children_, memory, base::Duration::zero());
    if (!answer) throw memory.no_answer();
  }
}

awaitable<void> DeviceGate::check() {
  if (is_gated()) co_await query_all();
}

awaitable<std::optional<std::vector<ByteCount>>> DeviceGate::measure() {
  try {
    for (device::GpuMemory& memory : memory_) memory.want(0);
    co_await query_all();
  } catch (const base::Error& error) {
    os::log(os::LogLevel::kWarning, "no memory gate: {}", error.what());
    co_return std::nullopt;
  }
  std::vector<ByteCount> free;
  for (const device::GpuMemory& memory : memory_) free.push_back(memory.free());
  co_return free;
}

awaitable<void> DeviceGate::before_sleep() {
  const std::optional<std::vector<ByteCount>> free = co_await measure();
  free_before_ = free.value_or(std::vector<ByteCount>{});
}

awaitable<void> DeviceGate::after_sleep() {
  if (free_before_.empty()) co_return;
  const Deadline settled_by = Deadline::after(kTimeToSettle);
  auto free = co_await measure();
  for (bool is_settled = false; free && !is_settled && !settled_by.expired();) {
    co_await loop::pause_for(kSettleInterval);
    auto again = co_await measure();
    is_settled = again == free;
    free = std::move(again);
  }
  if (!free) co_return;
  // An engine that slept already releases nothing; the value that was measured before stays valid.
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    wanted_[i] = std::max(wanted_[i], (*free)[i] - std::min((*free)[i], free_before_[i]));
  }
}

bool DeviceGate::is_gated() const {
  return std::any_of(wanted_.begin(), wanted_.end(), [](ByteCount wanted) { return wanted > 0; });
}

bool DeviceGate::is_known() const { return is_configured_ || is_gated(); }

awaitable<bool> DeviceGate::wait(Deadline deadline) {
  constexpr base::Duration kSlice = device::GpuMemory::kSlice;
  if (!is_configured_) {
    const std::map<base::DeviceOrdinal, ByteCount> kv = co_await kv_.settle(deadline);
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const auto found = kv.find(devices_[i]);
      if (found != kv.end()) wanted_[i] = std::max(wanted_[i], found->second);
    }
  }
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    device::GpuMemory& memory = memory_[i];
    memory.want(wanted_[i]);
    bool enough = wanted_[i] == 0;
    while (!enough) {
      const base::Duration time = std::min(kSlice, deadline.remaining().value_or(kSlice));
      const std::optional<bool> answer = co_await ask(children_, memory, time);
      enough = answer.value_or(false);
      if (enough || !deadline.expired()) continue;
      if (!answer) throw memory.no_answer();
      throw base::Error(base::ExitStatus::kTryAgain,
                        "wait for device memory: " + memory.describe());
    }
  }
  co_return is_gated();
}

}  // namespace fo::engine
