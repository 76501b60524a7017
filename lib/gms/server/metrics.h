// The text of gms-serve's GET /metrics: the counters of its servers in Prometheus' format. Pure.
#pragma once

#include <string>
#include <vector>

#include "gms/server/server_counters.h"

namespace fo::gms {

/// One server and its counters, which the caller owns.
struct MeteredServer {
  int device = 0;
  std::string uuid;
  std::string tag;
  const ServerCounters* counters = nullptr;
};

/// Contains every series of every server from the start, including zeros.
std::string metrics_text(const std::vector<MeteredServer>& servers);

}  // namespace fo::gms
