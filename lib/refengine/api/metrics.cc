#include "refengine/api/metrics.h"

#include "metrics/prometheus_text.h"

namespace fo::refengine {

std::string format_metrics(const std::string& model_name, const Scheduler::Load& load) {
  metrics::PrometheusText out;
  const metrics::PrometheusText::Labels labels{{"model_name", model_name}};
  out.add("vllm:num_requests_running", "gauge", "Requests that are running.", load.running, labels);
  out.add("vllm:num_requests_waiting", "gauge", "Requests that are waiting.", load.waiting, labels);
  out.add("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", load.prompt_tokens,
          labels);
  out.add("vllm:generation_tokens_total", "counter", "Tokens generated.", load.generated_tokens,
          labels);
  return out.take();
}

}  // namespace fo::refengine
