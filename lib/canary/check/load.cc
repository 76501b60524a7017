#include "canary/check/load.h"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>

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

// The metric of a sample line "name{labels} value [timestamp]", and its value.
const EngineMetric* find_metric(std::string_view line, double& value) {
  const EngineMetric* found = nullptr;
  for (const EngineMetric& metric : kEngineMetrics) {
    if (line.starts_with(metric.name)) found = &metric;
  }
  if (found == nullptr) return nullptr;
  line.remove_prefix(found->name.size());
  if (line.starts_with('{')) {
    // A label may contain anything but a bare quote.
    bool is_quoted = false;
    std::size_t at = 1;
    for (; at < line.size() && (is_quoted || line[at] != '}'); ++at) {
      if (line[at] == '\\') {
        ++at;
      } else if (line[at] == '"') {
        is_quoted = !is_quoted;
      }
    }
    if (at >= line.size()) return nullptr;
    line.remove_prefix(at + 1);
  }
  if (!line.starts_with(' ')) return nullptr;
  line.remove_prefix(1);
  const auto result = std::from_chars(line.data(), line.data() + line.size(), value);
  return result.ec == std::errc() && std::isfinite(value) ? found : nullptr;
}

}  // namespace

EngineLoad read_engine_load(std::string_view metrics) {
  EngineLoad load;
  while (!metrics.empty()) {
    const std::size_t end = std::min(metrics.find('\n'), metrics.size());
    double value = 0;
    if (const EngineMetric* const metric = find_metric(metrics.substr(0, end), value)) {
      auto& sum = metric->sum == Sum::kRunning   ? load.running
                  : metric->sum == Sum::kWaiting ? load.waiting
                                                 : load.tokens;
      sum = sum.value_or(0) + value;
    }
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
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
