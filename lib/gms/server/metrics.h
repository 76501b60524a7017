// The text of gms-serve's GET /metrics: the counters of its servers in Prometheus' format. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/strong.h"
#include "gms/server/server_counters.h"

namespace fo::gms {

/// One server and its counters, which the caller owns.
struct MeteredServer {
  base::DeviceOrdinal device;
  base::GpuUuid uuid;
  std::string tag;
  const ServerCounters* counters = nullptr;
};

/// Contains every series of every server from the start, including zeros.
std::string metrics_text(const std::vector<MeteredServer>& servers);

}  // namespace fo::gms
