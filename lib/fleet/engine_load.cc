#include "fleet/engine_load.h"

#include <array>

#include "metrics/sum_of_samples.h"

namespace fo::fleet {
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

}  // namespace fo::fleet
