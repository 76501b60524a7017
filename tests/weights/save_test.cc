// Saves from a real gms-serve, and their errors.
#include "weights/save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "os/process/process.h"
#include "snapshot_fixture.h"

namespace fo::weights {
namespace {

namespace fs = std::filesystem;
using base::ExitStatus;
using gms::LockType;
using testing::ElementsAre;
using testing::IsEmpty;

class Save : public SnapshotDirectory {
 protected:
  // gms-save in its own process, with these faults of its device.
  os::Child spawn_save(const std::string& faults = "", std::vector<std::string> more = {}) const {
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/gms-save",
                                  snap_,
                                  "--socket",
                                  socket_,
                                  "--driver",
                                  test::driver(),
                                  "--ring",
                                  "128KiB",
                                  "--copy-threads",
                                  "2",
                                  "--timeout",
                                  "20s"};
    argv.insert(argv.end(), more.begin(), more.end());
    const os::SpawnOptions options{.parent_death_signal = SIGKILL,
                                   .environment = {{"GMS_SIM_FAULTS", faults}}};
    return os::spawn(argv, options);
  }

  // Checks that it is complete and equals the published layout.
  void expect_good() {
    const Content before = published();
    ASSERT_TRUE(run(loading(snap_)));
    EXPECT_EQ(published(), before);
  }

  [[nodiscard]] bool partial_has(const std::string& name) const {
    for (const std::string& one : names()) {
      if (one.starts_with("snap.partial-") && fs::exists(dir_.path(one) + "/" + name)) return true;
    }
    return false;
  }
};

class SimulatedSave : public Save {};

TEST_F(Save, NeverTouchesWhatIsThere) {
  publish_model();
  fs::create_directory(snap_);
  dir_.write("snap/notes", "mine");
  const auto expect_kept = [&](Replace replace, const std::string& reason) {
    SaveOptions options = saving(snap_);
    options.replace = replace;
    const Failure failure = failure_of([&] { run(options); });
    EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
    EXPECT_EQ(failure.message, "save to '" + snap_ + "': " + reason);
    EXPECT_THAT(names(), ElementsAre("snap"));
  };
  expect_kept(Replace::kNo, "it exists already");
  expect_kept(Replace::kYes, "'notes' in it does not belong to a snapshot");
  EXPECT_EQ(content_of(snap_ + "/notes"), "mine");
  fs::remove_all(snap_);
  dir_.write("snap", "a file");
  expect_kept(Replace::kYes, "it exists and is not a folder");
  fs::remove(snap_);
  fs::create_symlink(dir_.path(), snap_);
  expect_kept(Replace::kYes, "it exists and is not a folder");
  fs::remove(snap_);
  EXPECT_EQ(status_of([&] { run(saving(dir_.path("absent/snap"))); }), ExitStatus::kCannotCreate);
}

TEST_F(Save, TakesThePlaceOfAnEmptyFolder) {
  publish_model();
  fs::create_directory(snap_);
  ASSERT_TRUE(run(saving(snap_ + "/")));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

TEST_F(Save, ReplacesASnapshotWhereToldTo) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  LoadOptions other;
  other.model = dir_.write("n", make_safetensors({make_part("x", "U8", "[9]", 9, 1)}));
  other.role = LockType::kRw;
  ASSERT_TRUE(run(other));
  SaveOptions options = saving(snap_);
  EXPECT_EQ(status_of([&] { run(options); }), ExitStatus::kCannotCreate);
  options.replace = Replace::kYes;
  ASSERT_TRUE(run(options));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
  // An incomplete snapshot of another program is refused, too.
  fs::remove(snap_ + "/manifest.json");
  ASSERT_TRUE(run(options));
  expect_good();
}

// Killed at every 40th copy from the device; an existing snapshot must be unchanged.
TEST_F(SimulatedSave, KilledAtAnyCopyLeavesNoSnapshotAndHarmsNone) {
  publish_model();
  for (const bool replacing : {false, true}) {
    if (replacing) {
      ASSERT_TRUE(run(saving(snap_)));
    }
    const std::string before = replacing ? content_of(snap_ + "/manifest.json") : "";
    int k = 1;
    for (;; k += 40) {
      const os::Child saver = spawn_save(
          "cuMemcpyDtoH:" + std::to_string(k) + "=kill",
          replacing ? std::vector<std::string>{"--replace"} : std::vector<std::string>{});
      const auto status = saver.wait(gms::soon());
      if (status == 0) break;
      ASSERT_EQ(status, 128 + SIGKILL);
      EXPECT_EQ(fs::exists(snap_), replacing);
      EXPECT_TRUE(!replacing || content_of(snap_ + "/manifest.json") == before);
      // A dead one is removed by the next save.
      EXPECT_LE(names().size(), replacing ? 2u : 1u);
    }
    EXPECT_GT(k, 100);
    EXPECT_THAT(names(), ElementsAre("snap"));
    expect_good();
    fs::remove_all(snap_);
  }
}

// Killed when one of these files appears, or slightly later.
TEST_F(Save, KilledWhileItFinishesLeavesAWholeSnapshotOrNone) {
  publish_model();
  for (const char* name : {"", "shards", "shards/shard_0000.bin", "gms_metadata.json",
                           "checksums.sha256", "manifest.json"}) {
    for (const bool replacing : {false, true}) {
      if (replacing && !fs::exists(snap_)) {
        ASSERT_TRUE(run(saving(snap_)));
      }
      const os::Child saver = spawn_save(
          "", replacing ? std::vector<std::string>{"--replace"} : std::vector<std::string>{});
      std::optional<os::WaitStatus> ended;
      ASSERT_TRUE(until([&] {
        ended = saver.wait(base::Deadline::after(base::Duration{}));
        return ended || partial_has(name);
      }));
      saver.signal(SIGKILL);
      if (!ended) {
        ASSERT_TRUE(saver.wait(gms::soon()));
      }
      EXPECT_TRUE(!replacing || fs::exists(snap_ + "/manifest.json"));
      if (fs::exists(snap_)) expect_good();
      if (!replacing) fs::remove_all(snap_);
    }
    fs::remove_all(snap_);
  }
  ASSERT_TRUE(run(saving(snap_)));
  EXPECT_THAT(names(), ElementsAre("snap"));
}

TEST_F(SimulatedSave, ADeviceThatFailsLeavesNothing) {
  publish_model();
  for (const char* fault : {"cuMemcpyDtoH:1=unknown", "cuMemcpyDtoH:90=unknown",
                            "cuMemMap:2=unknown", "cuMemHostAlloc:2=unknown",
                            "cuDevicePrimaryCtxRetain:1=unknown", "cuCtxSetCurrent:1=unknown"}) {
    EXPECT_EQ(spawn_save(fault).wait(gms::soon()), base::to_int(ExitStatus::kSoftware)) << fault;
    EXPECT_THAT(names(), IsEmpty()) << fault;
  }
}

TEST_F(SimulatedSave, InterruptedTwiceEndsEvenWhereTheDeviceHangs) {
  publish_model();
  const os::Child saver = spawn_save("cuMemcpyDtoH:5=hang");
  ASSERT_TRUE(until([&] { return partial_has("shards/shard_0000.bin"); }));
  ASSERT_TRUE(until([&] {
    saver.signal(SIGTERM);
    return saver.wait(base::Deadline::after(base::Duration{})) == 128 + SIGTERM;
  }));
}

TEST_F(Save, OfTwoAtOnceOneWins) {
  publish_model();
  const os::Child one = spawn_save();
  const os::Child other = spawn_save();
  const auto first = one.wait(gms::soon());
  const auto second = other.wait(gms::soon());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(std::min(*first, *second), 0);
  EXPECT_EQ(std::max(*first, *second), base::to_int(ExitStatus::kCannotCreate));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

TEST_F(Save, OfTwoThatReplaceBothAreDone) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const os::Child one = spawn_save("", {"--replace"});
  const os::Child other = spawn_save("", {"--replace"});
  EXPECT_EQ(one.wait(gms::soon()), 0);
  EXPECT_EQ(other.wait(gms::soon()), 0);
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

TEST(SaveReport, IsOneLineForPeopleAndForPrograms) {
  const SaveReport report{.bytes = 3 * base::kGiB,
                          .seconds = 1.5,
                          .tensors = 7,
                          .allocations = 3,
                          .shards = 1,
                          .memory_layout_hash = gms::LayoutHash("abc")};
  EXPECT_EQ(format_text(report),
            "saved 7 tensors, 3 GiB in 3 allocations and 1 shard, in 1.500 s (2 GiB/s), layout "
            "abc");
  EXPECT_EQ(format_json(report),
            R"({"bytes": 3221225472, "seconds": 1.500000, "tensors": 7, "allocations": 3, )"
            R"("shards": 1, "memory_layout_hash": "abc"})");
}

}  // namespace
}  // namespace fo::weights
