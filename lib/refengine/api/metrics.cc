#include "refengine/api/metrics.h"

#include <string_view>

#include "metrics/prometheus_text.h"

namespace fo::refengine {

std::string format_metrics(const std::string& model_name, const Scheduler::Load& load) {
  metrics::PrometheusText out;
  const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                       std::uint64_t value) {
    out.begin(name, type, help);
    out.add({{"model_name", model_name}}, value);
  };
  add("vllm:num_requests_running", "gauge", "Requests that are running.", load.running);
  add("vllm:num_requests_waiting", "gauge", "Requests that are waiting.", load.waiting);
  add("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", load.prompt_tokens);
  add("vllm:generation_tokens_total", "counter", "Tokens generated.", load.generated_tokens);
  return out.take();
}

}  // namespace fo::refengine
