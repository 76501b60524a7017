#include "fleet/engine_load.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::fleet {
namespace {

constexpr char kSample[] = R"(vllm:num_requests_running{model_name="m"} 5)";

TEST(EngineLoad, SumsTheSeriesOfVllm) {
  const EngineLoad load = read_engine_load(
      "# HELP vllm:num_requests_running Number of requests\n"
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 2.0\n"
      "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 3.0 1700000000000\n"
      "vllm:num_requests_waiting 1\n"
      "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 100\n"
      "vllm:prompt_tokens_total 1e3\n"
      "vllm:generation_tokens_total 24\n"
      "vllm:generation_tokens_created 9\n");
  EXPECT_EQ(load.running, 5);
  EXPECT_EQ(load.waiting, 1);
  EXPECT_EQ(load.tokens, 1024);
}

TEST(EngineLoad, ReadsSglangWithoutALastNewline) {
  const EngineLoad load = read_engine_load(
      "sglang:num_running_reqs{tp=\"0\"} 0\r\nsglang:num_queue_reqs 4\n"
      "sglang:prompt_tokens_total 5\nsglang:generation_tokens_total 6");
  EXPECT_EQ(load.running, 0);
  EXPECT_EQ(load.waiting, 4);
  EXPECT_EQ(load.tokens, 11);
}

TEST(EngineLoad, ALabelMayContainAnything) {
  const EngineLoad load =
      read_engine_load(R"(vllm:num_requests_running{model_name="a} 7 \" } 8 \\",engine="0"} 3)");
  EXPECT_EQ(load.running, 3);
}

TEST(EngineLoad, AMalformedSampleIsIgnored) {
  for (const char* const line :
       {"", "\n\n", "vllm:num_requests_running", "vllm:num_requests_running ",
        "vllm:num_requests_running x", "vllm:num_requests_running5",
        "vllm:num_requests_running NaN", "vllm:num_requests_running nan",
        "vllm:num_requests_running inf", "vllm:num_requests_running +Inf",
        "vllm:num_requests_running 1e999", "vllm:num_requests_running{",
        "vllm:num_requests_running{a=\"}", "vllm:num_requests_running{a=\"} 5",
        "vllm:num_requests_running{a=\"\\", "vllm:num_requests_running{}5",
        "my_vllm:num_requests_running 5"}) {
    EXPECT_FALSE(read_engine_load(line).running) << line;
  }
}

TEST(EngineLoad, EachTruncationOfASampleIsIgnored) {
  const std::string whole = kSample;
  EXPECT_EQ(read_engine_load(whole).running, 5);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read_engine_load(whole.substr(0, size)).running) << size;
  }
}

TEST(EngineLoad, AnEngineIsBusyWhileRequestsRunOrWait) {
  EXPECT_TRUE(EngineLoad{.running = 1}.is_busy());
  EXPECT_TRUE(EngineLoad{.waiting = 1}.is_busy());
  EXPECT_FALSE(EngineLoad{.running = 1}.has_queue());
  EXPECT_TRUE(EngineLoad{.waiting = 1}.has_queue());
  EXPECT_FALSE((EngineLoad{.running = 0, .waiting = 0}.is_busy()));
}

TEST(EngineLoad, AnEngineThatDoesNotCountItsRequestsIsNotKnownToBeIdle) {
  EXPECT_FALSE(read_engine_load("").is_idle());
  EXPECT_FALSE(read_engine_load("trtllm_request_count 3\n").is_idle());
  EXPECT_FALSE(EngineLoad{.waiting = 0}.is_idle());
  EXPECT_TRUE(EngineLoad{.running = 0}.is_idle());
  EXPECT_FALSE(EngineLoad{.running = 1}.is_idle());
  EXPECT_FALSE((EngineLoad{.running = 0, .waiting = 1}.is_idle()));
}

}  // namespace
}  // namespace fo::fleet
