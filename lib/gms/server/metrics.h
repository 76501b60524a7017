// What GET /metrics of gms-serve answers: the counters of its servers in Prometheus' text format.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "gms/server/server_counters.h"

namespace fo::gms {

/// One server, and where it counts. The counters stay the caller's.
struct MeteredServer {
  int device = 0;
  std::string uuid;
  std::string tag;
  const ServerCounters* counters = nullptr;
};

/// Every series of every server is there from the start, zeros too.
std::string metrics_text(const std::vector<MeteredServer>& servers);

}  // namespace fo::gms
