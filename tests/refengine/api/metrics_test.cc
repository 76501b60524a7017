#include "refengine/api/metrics.h"

#include <gtest/gtest.h>

namespace fo::refengine {
namespace {

TEST(Metrics, EverySeriesIsThere) {
  EXPECT_EQ(format_metrics("m", {1, 2, 30, 400}),
            "# HELP vllm:num_requests_running Requests that are running.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            "vllm:num_requests_running{model_name=\"m\"} 1\n"
            "# HELP vllm:num_requests_waiting Requests that are waiting.\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            "vllm:num_requests_waiting{model_name=\"m\"} 2\n"
            "# HELP vllm:prompt_tokens_total Prompt tokens processed.\n"
            "# TYPE vllm:prompt_tokens_total counter\n"
            "vllm:prompt_tokens_total{model_name=\"m\"} 30\n"
            "# HELP vllm:generation_tokens_total Tokens generated.\n"
            "# TYPE vllm:generation_tokens_total counter\n"
            "vllm:generation_tokens_total{model_name=\"m\"} 400\n");
}

TEST(Metrics, TheNameIsEscaped) {
  EXPECT_NE(format_metrics("a\"b\\c\nd", {}).find("{model_name=\"a\\\"b\\\\c\\nd\"} 0"),
            std::string::npos);
}

}  // namespace
}  // namespace fo::refengine
