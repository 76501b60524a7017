// GET /metrics, and nothing else: what a daemon's --metrics serves.
#pragma once

#include <functional>
#include <string>

#include "http/server.h"

namespace fo::http {

/// Answers GET and HEAD of /metrics with what `text` returns, in Prometheus' format; 404 and 405 to
/// anything else.
Handler metrics_handler(std::function<std::string()> text);

}  // namespace fo::http
