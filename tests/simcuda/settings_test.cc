// Parsing of the GMS_SIM_* variables.
#include "simcuda/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/environment.h"

namespace fo::simcuda {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The active quirks, each under its own name.
std::vector<std::string> words(const Quirks& quirks) {
  std::vector<std::string> on;
  if (quirks.map_needs_context) on.emplace_back("map-needs-context");
  if (quirks.import_needs_context) on.emplace_back("import-needs-context");
  if (quirks.no_reexport) on.emplace_back("no-reexport");
  if (quirks.late_copy_errors) on.emplace_back("late-copy-errors");
  if (quirks.no_uuid) on.emplace_back("no-uuid");
  if (quirks.mig) on.emplace_back("mig");
  return on;
}

class SettingsEnvironment : public ::testing::Test {
 protected:
  void set(const char* name, const char* value) { environment_.set(name, value); }

  test::Environment environment_{
      "GMS_SIM_DIR",          "GMS_SIM_VRAM",        "GMS_SIM_DEVICES", "GMS_SIM_GRANULARITY",
      "GMS_SIM_CONTEXT_SIZE", "GMS_SIM_FAULTS",      "GMS_SIM_LATENCY", "GMS_SIM_QUIRKS",
      "GMS_SIM_FREE_DELAY",   "CUDA_VISIBLE_DEVICES"};
};

TEST_F(SettingsEnvironment, Defaults) {
  const Settings settings = Settings::from_env();
  EXPECT_EQ(settings.dir, "/dev/shm/gms-sim-" + std::to_string(::geteuid()));
  EXPECT_TRUE(settings.dir_is_default);
  EXPECT_EQ(settings.devices, 2);
  EXPECT_EQ(settings.vram, std::uint64_t{8} << 30);
  EXPECT_EQ(settings.granularity, 2u << 20);
  EXPECT_EQ(settings.context_size, 16u << 20);
  EXPECT_THAT(settings.faults, IsEmpty());
  EXPECT_THAT(settings.latencies, IsEmpty());
  EXPECT_THAT(words(settings.quirks), IsEmpty());
  EXPECT_EQ(settings.free_delay, 0s);
  EXPECT_FALSE(settings.visible_devices);
}

TEST_F(SettingsEnvironment, EachVariableIsRead) {
  set("GMS_SIM_DIR", "/somewhere");
  set("GMS_SIM_DEVICES", "8");
  set("GMS_SIM_VRAM", "80GiB");
  set("GMS_SIM_GRANULARITY", "64KiB");
  set("GMS_SIM_CONTEXT_SIZE", "0");
  set("GMS_SIM_FAULTS", "cuMemMap:1=oom");
  set("GMS_SIM_LATENCY", "cuMemMap=1ms");
  set("GMS_SIM_QUIRKS", "no-reexport,no-uuid");
  set("GMS_SIM_FREE_DELAY", "200ms");
  set("CUDA_VISIBLE_DEVICES", "");
  const Settings settings = Settings::from_env();
  EXPECT_EQ(settings.dir, "/somewhere");
  EXPECT_FALSE(settings.dir_is_default);
  EXPECT_EQ(settings.devices, 8);
  EXPECT_EQ(settings.vram, std::uint64_t{80} << 30);
  EXPECT_EQ(settings.granularity, 64u << 10);
  EXPECT_EQ(settings.context_size, 0u);
  EXPECT_EQ(settings.faults.size(), 1u);
  EXPECT_EQ(settings.latencies.size(), 1u);
  EXPECT_THAT(words(settings.quirks), ElementsAre("no-reexport", "no-uuid"));
  EXPECT_EQ(settings.free_delay, 200ms);
  EXPECT_EQ(settings.visible_devices, "");
}

TEST_F(SettingsEnvironment, NonsenseIsRefused) {
  const std::pair<const char*, const char*> nonsense[] = {
      {"GMS_SIM_DEVICES", "0"},          {"GMS_SIM_DEVICES", "65"},
      {"GMS_SIM_DEVICES", "two"},        {"GMS_SIM_VRAM", "0"},
      {"GMS_SIM_VRAM", "8 GiB"},         {"GMS_SIM_VRAM", "8GB"},
      {"GMS_SIM_GRANULARITY", "3MiB"},   {"GMS_SIM_GRANULARITY", "1024"},
      {"GMS_SIM_CONTEXT_SIZE", "-1"},    {"GMS_SIM_FAULTS", "cuMemMap"},
      {"GMS_SIM_LATENCY", "cuMemMap=1"}, {"GMS_SIM_QUIRKS", "no-context"},
      {"GMS_SIM_FREE_DELAY", "200"},     {"GMS_SIM_FREE_DELAY", "soon"}};
  for (const auto& [name, value] : nonsense) {
    set(name, value);
    EXPECT_THROW(Settings::from_env(), SettingsError) << name << "=" << value;
    environment_.unset(name);
  }
}

TEST(Settings, Sizes) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("2MiB"), 2u << 20);
  EXPECT_EQ(parse_size("8388607TiB"), std::uint64_t{8388607} << 40);
  for (const char* bad : {"", "MiB", "-1", "1.5GiB", "8388608TiB", "99999999999999999999"}) {
    EXPECT_FALSE(parse_size(bad)) << bad;
  }
}

TEST(Settings, Durations) {
  EXPECT_EQ(parse_duration("200us"), 200us);
  EXPECT_EQ(parse_duration("3ms"), 3ms);
  EXPECT_EQ(parse_duration("1s"), 1s);
  for (const char* bad : {"", "5", "5m", "ms", "-1ms"}) EXPECT_FALSE(parse_duration(bad)) << bad;
}

TEST(Settings, Faults) {
  const auto faults = parse_faults(
      "cuMemCreate:2=oom,cuMemMap:5+=hang,cuInit:*=100,cuMemGetInfo_v2:1=unknown,"
      "cuMemRelease:3=kill");
  ASSERT_EQ(faults.size(), 5u);
  EXPECT_EQ(faults[0].function, "cuMemCreate");
  EXPECT_EQ(faults[0].first, 2u);
  EXPECT_FALSE(faults[0].and_later);
  EXPECT_EQ(faults[0].result, 2u);
  EXPECT_EQ(faults[1].first, 5u);
  EXPECT_TRUE(faults[1].and_later);
  EXPECT_EQ(faults[1].action, Fault::Action::kHang);
  EXPECT_EQ(faults[2].first, 1u);
  EXPECT_TRUE(faults[2].and_later);
  EXPECT_EQ(faults[2].result, 100u);
  EXPECT_EQ(faults[3].function, "cuMemGetInfo");
  EXPECT_EQ(faults[3].result, 999u);
  EXPECT_EQ(faults[4].action, Fault::Action::kKill);
  for (const char* bad : {"cuMemMap", "cuMemMap:1", "cuMemMap=oom", "cuMemMap:0=oom", ":1=oom",
                          "cuMemMap:x=oom", "cuMemMap:1=10000", "cuMemMap:1=-1", "cuMemMap:1=what",
                          "cuMemMap:1=", "cuMemMap:1=0", "cuMemMap:+=oom", ",cuMemMap:1=oom"}) {
    EXPECT_THROW(parse_faults(bad), SettingsError) << bad;
  }
}

TEST(Settings, Latencies) {
  const auto latencies = parse_latencies("cuMemCreate=200us,cuMemGetInfo_v2=1ms");
  ASSERT_EQ(latencies.size(), 2u);
  EXPECT_EQ(latencies[0].function, "cuMemCreate");
  EXPECT_EQ(latencies[0].duration, 200us);
  EXPECT_EQ(latencies[1].function, "cuMemGetInfo");
  for (const char* bad : {"cuMemMap", "=1ms", "cuMemMap="}) {
    EXPECT_THROW(parse_latencies(bad), SettingsError) << bad;
  }
}

TEST(Settings, Quirks) {
  EXPECT_THAT(words(parse_quirks("")), IsEmpty());
  for (const char* one : {"map-needs-context", "import-needs-context", "no-reexport",
                          "late-copy-errors", "no-uuid", "mig"}) {
    EXPECT_THAT(words(parse_quirks(one)), ElementsAre(one));
  }
  EXPECT_THAT(words(parse_quirks("need-context")),
              ElementsAre("map-needs-context", "import-needs-context"));
  EXPECT_THAT(words(parse_quirks("no-uuid,no-reexport,no-uuid")),
              ElementsAre("no-reexport", "no-uuid"));
  for (const char* bad : {"need_context", "No-Reexport", "no-reexport=1", " no-uuid",
                          "no-uuid,,no-reexport", ",no-uuid", "deferred-free"}) {
    EXPECT_THROW(parse_quirks(bad), SettingsError) << bad;
  }
}

TEST(Settings, VisibleDevices) {
  const std::vector<std::string> uuids{"GPU-aabb", "GPU-aacc", "GPU-ddee"};
  EXPECT_THAT(visible_devices("", uuids), IsEmpty());
  EXPECT_THAT(visible_devices("-1", uuids), IsEmpty());
  EXPECT_THAT(visible_devices("2,0", uuids), ElementsAre(2, 0));
  EXPECT_THAT(visible_devices("1,7,0", uuids), ElementsAre(1));
  EXPECT_THAT(visible_devices("1,1", uuids), ElementsAre(1));
  EXPECT_THAT(visible_devices("GPU-ddee", uuids), ElementsAre(2));
  EXPECT_THAT(visible_devices("GPU-D,gpu-aac", uuids), ElementsAre(2, 1));
  EXPECT_THAT(visible_devices("GPU-aa", uuids), IsEmpty()) << "ambiguous";
  EXPECT_THAT(visible_devices("GPU-", uuids), IsEmpty());
  EXPECT_THAT(visible_devices("GPU-ddeeff", uuids), IsEmpty());
}

}  // namespace
}  // namespace fo::simcuda
