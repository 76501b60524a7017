// See injector.h.
#include "simcuda/injector.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "simcuda/result.h"

namespace fo::simcuda {

Injector::Injector(const std::vector<Fault>& faults, const std::vector<Latency>& latencies) {
  for (const Fault& fault : faults) plans_[fault.function].faults.push_back(fault);
  for (const Latency& latency : latencies) plans_[latency.function].latency = latency.duration;
}

void Injector::enter(std::string_view function) {
  const auto found = plans_.find(unversioned(function));
  if (found == plans_.end()) return;
  Plan& plan = found->second;
  std::uint64_t call = 0;
  {
    const std::lock_guard lock(mutex_);
    call = ++plan.calls;
  }
  if (plan.latency.count() > 0) std::this_thread::sleep_for(plan.latency);
  for (const Fault& fault : plan.faults) {
    if (call != fault.first && !(fault.and_later && call > fault.first)) continue;
    switch (fault.action) {
      case Fault::Action::kHang:
        for (;;) ::pause();
      case Fault::Action::kKill:
        std::raise(SIGKILL);
        break;
      case Fault::Action::kFail:
        throw Failure{Result{fault.result}};
    }
  }
}

}  // namespace fo::simcuda
