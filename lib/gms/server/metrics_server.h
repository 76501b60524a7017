// gms-serve --metrics: an HTTP server for GET /metrics, in a process of its own, so that whoever
// scrapes it can neither hold up nor bring down those who hold memory.
//
//   parent, before it forks anything     http::Listener listener = http::listen_tcp(address);
//   the child, forked after the pages    run_metrics_server(std::move(listener.fd), servers, stop);
//
// The child holds no socket of a GMS and touches no CUDA. Its end is no server's end.
#pragma once

#include <vector>

#include "base/unique_fd.h"
#include "gms/server/metrics.h"

namespace fo::gms {

/// Answers until `stop_fd` (a signalfd, an eventfd, a pipe; stays the caller's) is readable: then
/// finishes the answers under way, within a bound. `listener` listens and is non-blocking. Throws
/// nothing but what a broken machine makes it throw: Error(kOsError) or std::bad_alloc.
void run_metrics_server(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                        int stop_fd);

}  // namespace fo::gms
