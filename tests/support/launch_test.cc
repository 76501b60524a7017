// The locks that each engine requests, and its configuration, by command line and environment: the
// behaviour that the stand-in imitates.
#include "support/worker/launch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <sstream>

#include "support/environment.h"

namespace fo::stand_in {
namespace {

using gms::LockType;

const std::string kVllm =
    "vllm serve model --load-format gms --worker-cls "
    "gpu_memory_service.integrations.vllm.worker.GMSWorker ";
const std::string kSglang = "python3 -m sglang.launch_server --model-path model --load-format gms ";
const std::string kDynamo = "python3 -m dynamo.vllm --model model --load-format gms ";

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

class LaunchTest : public testing::Test {
 protected:
  static Launch launch(const std::string& line) { return parse_launch(words(line)).value(); }
  // -1 if the program would start.
  static int status_of(const std::string& line) {
    try {
      parse_launch(words(line));
    } catch (const Refused& refusal) {
      return refusal.status();
    }
    return -1;
  }

  test::Environment environment_{"ENGINE_ID",
                                 "DYN_GMS_SCRATCH_KV_ENABLED",
                                 "VLLM_SERVER_DEV_MODE",
                                 "DYN_VLLM_GMS_SHADOW_MODE",
                                 "DYN_SYSTEM_PORT",
                                 "FAILOVER_LOCK_PATH"};
};

TEST_F(LaunchTest, OnlyTheLoaderConfigMakesVllmAReader) {
  environment_.set("ENGINE_ID", "1");
  EXPECT_EQ(launch(kVllm).weights_lock, LockType::kRwOrRo);
  EXPECT_EQ(launch(kVllm + R"(--model-loader-extra-config {"gms_read_only":false})").weights_lock,
            LockType::kRwOrRo);
  const Launch reader = launch(
      kVllm +
      R"(--model-loader-extra-config={"gms_read_only":true,"gms_ro_connect_timeout_ms":500})");
  EXPECT_EQ(reader.weights_lock, LockType::kRo);
  EXPECT_EQ(reader.reader_timeout, std::chrono::milliseconds(500));
  EXPECT_EQ(launch(kVllm).reader_timeout, std::nullopt);
  EXPECT_EQ(launch(kDynamo).weights_lock, LockType::kRwOrRo);
}

TEST_F(LaunchTest, EngineIdCountsInShadowModeAlone) {
  environment_.set("DYN_VLLM_GMS_SHADOW_MODE", "true");
  EXPECT_EQ(launch(kDynamo).weights_lock, LockType::kRwOrRo);
  environment_.set("ENGINE_ID", "1");
  const Launch shadow = launch(kDynamo);
  EXPECT_EQ(shadow.weights_lock, LockType::kRo);
  EXPECT_TRUE(shadow.shadow_mode);
  EXPECT_TRUE(shadow.scratch_kv);
  EXPECT_EQ(shadow.lock_path, "/shared/failover.lock");
  EXPECT_FALSE(launch(kDynamo + "--no-gms-shadow-mode").shadow_mode);
  environment_.unset("DYN_VLLM_GMS_SHADOW_MODE");
  EXPECT_TRUE(launch(kDynamo + "--gms-shadow-mode").shadow_mode);
  // The other programs ignore it.
  EXPECT_EQ(status_of(kVllm + "--gms-shadow-mode"), 2);
}

TEST_F(LaunchTest, TheKvCacheIsInTheGmsByTheSleepModeOrForSglangAlways) {
  EXPECT_FALSE(launch(kVllm).kv_in_gms);
  EXPECT_TRUE(launch(kVllm + "--enable-sleep-mode").kv_in_gms);
  EXPECT_TRUE(launch(kSglang).kv_in_gms);
  for (const char* yes : {"1", "true", "Yes"}) {
    environment_.set("DYN_GMS_SCRATCH_KV_ENABLED", yes);
    EXPECT_TRUE(launch(kVllm).scratch_kv) << yes;
  }
  environment_.set("DYN_GMS_SCRATCH_KV_ENABLED", "on");
  EXPECT_FALSE(launch(kVllm).scratch_kv);
}

TEST_F(LaunchTest, VllmIsPutToSleepInDeveloperModeWithItsSleepMode) {
  EXPECT_FALSE(launch(kVllm + "--enable-sleep-mode").has_sleep_routes);
  environment_.set("VLLM_SERVER_DEV_MODE", "1");
  EXPECT_FALSE(launch(kVllm).has_sleep_routes);
  EXPECT_TRUE(launch(kVllm + "--enable-sleep-mode").has_sleep_routes);
  EXPECT_TRUE(launch(kSglang + "--enable-memory-saver").has_sleep_routes);
  EXPECT_FALSE(launch(kSglang).has_sleep_routes);
}

TEST_F(LaunchTest, TheLoadFormatIsKnownByTheWorkerClass) {
  EXPECT_EQ(status_of("vllm serve model --load-format gms"), 1);
  EXPECT_EQ(status_of("vllm serve model --load-format gms --worker-cls other.Worker"), 1);
  EXPECT_EQ(status_of("python3 -m vllm.entrypoints.openai.api_server --load-format gms"), 1);
  EXPECT_EQ(status_of(kVllm), -1);
  // It selects its worker itself.
  EXPECT_EQ(status_of(kDynamo), -1);
}

TEST_F(LaunchTest, OptionsAreThoseOfTheRealProgram) {
  EXPECT_EQ(launch(kVllm + "--max_model_len=10").model, "model");
  EXPECT_EQ(status_of(kVllm + "--enable-memory-saver"), 2);
  EXPECT_EQ(status_of(kVllm + "--port"), 2);
  EXPECT_EQ(status_of(kVllm + "more"), 2);
  EXPECT_EQ(status_of(kSglang + "--worker-cls x"), 2);
  EXPECT_EQ(parse_launch(words("python3 -c pass")), std::nullopt);
}

}  // namespace
}  // namespace fo::stand_in
