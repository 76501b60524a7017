// gms-serve --metrics: an HTTP server for GET /metrics, /live and /ready in its own process, so
// that its clients can neither delay nor crash the processes that hold memory.
//
//   parent, before it forks anything     http::Listener listener = http::listen_tcp(address);
//   the child, forked after the pages    run_metrics_server(std::move(listener.fd), servers, stop);
//
// The child holds no socket of a GMS and does not call CUDA. Its end does not end any server.
#pragma once

#include <vector>

#include "base/unique_fd.h"
#include "gms/server/metrics.h"

namespace fo::gms {

/// Answers until `stop_fd` (a signalfd, an eventfd, a pipe; owned by the caller) is readable, then
/// finishes pending answers within a bound. `listener` must be listening and non-blocking. Throws
/// only for errors of the machine: Error(kOsError) or std::bad_alloc.
void run_metrics_server(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                        int stop_fd);

}  // namespace fo::gms
