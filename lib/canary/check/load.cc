#include "canary/check/load.h"

#include <array>
#include <chrono>

#include "metrics/sum_of_samples.h"

namespace fo::canary {
namespace {

enum class Sum { kRunning, kWaiting, kTokens };
struct EngineMetric {
  std::string_view name;
  Sum sum;
};
constexpr std::array kEngineMetrics{
    EngineMetric{"vllm:num_requests_running", Sum::kRunning},
    EngineMetric{"vllm:num_requests_waiting", Sum::kWaiting},
    EngineMetric{"vllm:prompt_tokens_total", Sum::kTokens},
    EngineMetric{"vllm:generation_tokens_total", Sum::kTokens},
    EngineMetric{"sglang:num_running_reqs", Sum::kRunning},
    EngineMetric{"sglang:num_queue_reqs", Sum::kWaiting},
    EngineMetric{"sglang:prompt_tokens_total", Sum::kTokens},
    EngineMetric{"sglang:generation_tokens_total", Sum::kTokens},
};

}  // namespace

EngineLoad read_engine_load(std::string_view text) {
  EngineLoad load;
  for (const EngineMetric& metric : kEngineMetrics) {
    const auto value = metrics::sum_of_samples(text, metric.name);
    if (!value) continue;
    auto& sum = metric.sum == Sum::kRunning   ? load.running
                : metric.sum == Sum::kWaiting ? load.waiting
                                              : load.tokens;
    sum = sum.value_or(0) + *value;
  }
  return load;
}

std::string Progress::reason() const {
  return "requests run, and no token came for " +
         base::format_duration(std::chrono::duration_cast<std::chrono::seconds>(silent));
}

Progress ProgressWatch::update(const EngineLoad& load, base::Duration now) {
  if (load.running.value_or(0) <= 0 || !load.tokens) {
    last_.reset();
    return {};
  }
  const bool has_moved = last_ && *load.tokens > last_->tokens;
  // The counters of a new process begin again.
  const bool is_new = !last_ || *load.tokens < last_->tokens;
  if (is_new || has_moved) last_ = Seen{*load.tokens, now};
  return {.is_running = true, .has_moved = has_moved, .silent = now - last_->since};
}

}  // namespace fo::canary
