#include "canary/daemon/gpu_errors.h"

#include <algorithm>
#include <utility>

namespace fo::canary {
namespace {

Cause interconnect(const Worker& worker) {
  return {.reason = "interconnect: all canaries were slow, and " + worker.link_error->text};
}

}  // namespace

std::string describe(const Xid& xid) {
  const std::string_view name = name_of(xid.code);
  return "Xid " + std::to_string(xid.code) + " of GPU " + xid.bus_id +
         (name.empty() ? "" : ": " + std::string(name));
}

std::size_t find_xid(Workers& workers, const Xid& xid, const std::string& host, const Now& at) {
  std::size_t concerned = 0;
  for (const auto& [id, worker] : workers.all()) {
    if (worker->host != host) continue;
    const auto& gpus = worker->gpus;
    if (std::find(gpus.begin(), gpus.end(), xid.bus_id) != gpus.end()) {
      ++concerned;
      if (class_of(xid) == XidClass::kFatal) {
        workers.find(*worker, Finding::kConviction, {.reason = describe(xid)}, at);
      }
    }
    if (!is_of_link(xid)) continue;
    worker->link_error = {.at = at.steady, .text = describe(xid)};
    if (worker->slow_at && at.steady - *worker->slow_at <= kAtOnce) {
      workers.find(*worker, Finding::kWeak, interconnect(*worker), at);
    }
  }
  return concerned;
}

Cause cause_of_slow(Worker& worker, Cause cause, const Now& at) {
  worker.slow_at = at.steady;
  const bool is_by_link = worker.link_error && at.steady - worker.link_error->at <= kAtOnce;
  return is_by_link ? interconnect(worker) : std::move(cause);
}

}  // namespace fo::canary
