#include "cuda/gpu_health.h"

#include <gmock/gmock.h>

#include "support/environment.h"
#include "support/failure.h"

namespace fo::cuda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kFakeNvml = FO_BUILD_DIR "/tests/libfake_nvml.so";
const base::GpuUuid kKnown("GPU-known");

// The health of the only device, if NVML reports this.
GpuHealth health_of(const std::string& counters) {
  const test::ScopedVariable variable("FO_TEST_NVML", "count=1 " + counters);
  return query_gpu_health(std::nullopt, kFakeNvml).at(0);
}

TEST(GpuHealth, CountersOfEachKind) {
  const GpuHealth gpu = health_of(
      "temperature=41 corrected0=1 corrected1=2 uncorrected0=3 uncorrected1=4 retired0=5 "
      "retired1=0 "
      "retiring=0 rows=6 throttle=5 link0=1 link0.0=7 link0.1=8 link0.2=9 link0.3=10 link1=0");
  EXPECT_EQ(gpu.index, 0U);
  EXPECT_EQ(gpu.uuid, "GPU-known");
  EXPECT_EQ(gpu.name, "Fake");
  EXPECT_EQ(gpu.bus_id, "0000:3b:00.0");
  EXPECT_EQ(gpu.temperature, 41U);
  EXPECT_EQ(gpu.corrected.current, 1U);
  EXPECT_EQ(gpu.corrected.aggregate, 2U);
  EXPECT_EQ(gpu.uncorrected.current, 3U);
  EXPECT_EQ(gpu.uncorrected.aggregate, 4U);
  EXPECT_EQ(gpu.retired_pages.single_bit, 5U);
  EXPECT_EQ(gpu.retired_pages.double_bit, 0U);
  EXPECT_EQ(gpu.retired_pages.is_pending, false);
  ASSERT_TRUE(gpu.remapped_rows);
  EXPECT_EQ(gpu.remapped_rows->corrected, 6U);
  EXPECT_EQ(gpu.remapped_rows->uncorrected, 7U);
  EXPECT_THAT(throttle_names(gpu.throttle_reasons.value()),
              ElementsAre("gpu_idle", "sw_power_cap"));
  ASSERT_EQ(gpu.links.size(), 2U);
  EXPECT_TRUE(gpu.links[0].is_active);
  EXPECT_EQ(gpu.links[0].replays, 7U);
  EXPECT_EQ(gpu.links[0].recoveries, 8U);
  EXPECT_EQ(gpu.links[0].crc_flit_errors, 9U);
  EXPECT_EQ(gpu.links[0].crc_data_errors, 10U);
  EXPECT_FALSE(gpu.links[1].is_active);
  EXPECT_FALSE(gpu.links[1].replays);
}

TEST(GpuHealth, WhatIsNotSupportedIsAbsent) {
  const GpuHealth gpu = health_of("");
  EXPECT_EQ(gpu.error, "");
  EXPECT_FALSE(gpu.temperature);
  EXPECT_FALSE(gpu.corrected.current || gpu.corrected.aggregate);
  EXPECT_FALSE(gpu.uncorrected.current || gpu.uncorrected.aggregate);
  EXPECT_FALSE(gpu.retired_pages.single_bit || gpu.retired_pages.double_bit);
  EXPECT_FALSE(gpu.retired_pages.is_pending);
  EXPECT_FALSE(gpu.remapped_rows || gpu.throttle_reasons);
  EXPECT_THAT(gpu.links, IsEmpty());
  EXPECT_THAT(problems_of(gpu), IsEmpty());
}

TEST(GpuHealth, WhatIsNoProblem) {
  EXPECT_THAT(problems_of(health_of("temperature=90 corrected0=1000 uncorrected0=0 uncorrected1=4 "
                                    "retired0=5 retired1=6 retiring=0 rows=6 pending=0 failed=0 "
                                    "throttle=311 link0=0 link1=1 link1.0=7")),
              IsEmpty());
}

TEST(GpuHealth, EachProblem) {
  const auto problems = [](const char* counters) { return problems_of(health_of(counters)); };
  EXPECT_THAT(problems("uncorrected0=2"), ElementsAre("2 uncorrected memory errors"));
  EXPECT_THAT(problems("retiring=1"), ElementsAre("a page retirement is pending: reset the GPU"));
  EXPECT_THAT(problems("rows=1 pending=1 failed=1"),
              ElementsAre("a row remapping failed", "a row remapping is pending: reset the GPU"));
  EXPECT_THAT(problems("throttle=201"), ElementsAre("clocks are reduced: hw_slowdown",
                                                    "clocks are reduced: hw_thermal_slowdown",
                                                    "clocks are reduced: hw_power_brake_slowdown"));
}

TEST(GpuHealth, ALostGpuIsListedWithItsError) {
  const auto gpus = query_gpu_health(std::nullopt, kFakeNvml);
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_THAT(problems_of(gpus[0]), IsEmpty());
  EXPECT_EQ(gpus[1].index, 1U);
  EXPECT_EQ(gpus[1].uuid, "GPU-lost");
  EXPECT_THAT(problems_of(gpus[1]), ElementsAre("GPU is lost"));
}

TEST(GpuHealth, OneGpuByItsUuid) {
  const auto gpus = query_gpu_health(kKnown, kFakeNvml);
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].index, 5U);
}

TEST(GpuHealth, NoNvmlNoGpuAndAnotherGpuAreUnavailable) {
  const auto failure = [](const std::optional<base::GpuUuid>& uuid, const std::string& library) {
    const auto found = test::failure_of([&] { query_gpu_health(uuid, library); });
    EXPECT_EQ(found.status, base::ExitStatus::kUnavailable);
    return found.message;
  };
  EXPECT_EQ(failure(base::GpuUuid("GPU-other"), kFakeNvml),
            "query NVML for the health of 'GPU-other': Not Found");
  EXPECT_THAT(failure(std::nullopt, "/nowhere/libnvidia-ml.so.1"),
              testing::StartsWith("query NVML for the health of all GPUs: /nowhere"));
  const test::ScopedVariable variable("FO_TEST_NVML", "count=0");
  EXPECT_EQ(failure(std::nullopt, kFakeNvml), "query NVML for the health of all GPUs: no GPU");
}

}  // namespace
}  // namespace fo::cuda
