// The text of GET /metrics: the engine's load, under vLLM's names. Pure.
#pragma once

#include <string>

#include "refengine/scheduler.h"

namespace fo::refengine {

/// Prometheus' text format 0.0.4.
std::string format_metrics(const std::string& model_name, const Scheduler::Load& load);

}  // namespace fo::refengine
