// The handler of a daemon's --metrics server, which has only GET /metrics.
#pragma once

#include <functional>
#include <string>

#include "http/server.h"

namespace fo::http {

/// Answers GET and HEAD of /metrics with the return value of `text`, in Prometheus' format; 404 and
/// 405 to all other requests.
Handler metrics_handler(std::function<std::string()> text);

}  // namespace fo::http
