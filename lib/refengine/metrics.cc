#include "refengine/metrics.h"

#include <string_view>

namespace fo::refengine {
namespace {

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text;
}

}  // namespace

std::string format_metrics(const std::string& model_name, const Scheduler::Load& load) {
  const std::string labels = "{model_name=\"" + escaped(model_name) + "\"} ";
  std::string text;
  const auto add = [&](const std::string& name, const char* type, const char* help,
                       std::uint64_t value) {
    text += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n" + name + labels +
            std::to_string(value) + "\n";
  };
  add("vllm:num_requests_running", "gauge", "Requests that the model works on.", load.running);
  add("vllm:num_requests_waiting", "gauge", "Requests that wait for the model.", load.waiting);
  add("vllm:prompt_tokens_total", "counter", "Prompt tokens processed.", load.prompt_tokens);
  add("vllm:generation_tokens_total", "counter", "Tokens generated.", load.generated_tokens);
  return text;
}

}  // namespace fo::refengine
