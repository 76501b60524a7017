#include "engine/device_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "loop/children.h"
#include "loop/test_loop.h"
#include "os/file/file.h"
#include "os/process/process_tree.h"
#include "support/environment.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/temp_dir.h"

namespace fo::engine {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::in_ms;
using test::soon;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using base::kMiB;

/// A fixture whose fo-gpu is a script that records its arguments, and then runs the test's
/// commands.
class DeviceGateTest : public test::FdCounting {
 protected:
  ~DeviceGateTest() override {
    loop_.run_until([] { return os::descendants().empty(); });
  }

  /// `script` has "device" and "wanted" as variables, and "say MIB" to answer.
  void answer(const std::string& script) {
    const std::string file = dir_.path("fo-gpu");
    std::ofstream(file) << "#!/bin/sh\necho \"$*\" >>" << dir_.path("asked")
                        << "\nread -r device wanted <<END\n$3 $5\nEND\n"
                           "say() { echo \"{\\\"free\\\":$(($1 * 1048576)),\\\"uuid\\\":\\\"GPU-$"
                           "device\\\"}\"; }\n"
                        << script << "\n";
    EXPECT_EQ(::chmod(file.c_str(), 0700), 0);
  }
  /// Like the real fo-gpu: exit status 0 if as much is free as wanted, otherwise 75.
  void have_free(int mib) {
    answer("say " + std::to_string(mib) + "; [ \"$wanted\" -le " +
           std::to_string(static_cast<base::ByteCount>(mib) * kMiB) + " ] || exit 75");
  }
  std::string asked() {
    try {
      return os::read_file(dir_.path("asked"), 1 << 16);
    } catch (const base::Error&) {
      return "";
    }
  }
  DeviceGate gate(std::optional<base::ByteCount> wanted,
                  std::vector<base::DeviceOrdinal> devices = {base::DeviceOrdinal(0)}) {
    return {children_, std::move(devices), wanted};
  }
  /// An engine whose device has this much free memory before and after its sleep.
  void sleep(DeviceGate& gate, int before, int after) {
    have_free(before);
    loop_.run(gate.before_sleep());
    have_free(after);
    loop_.run(gate.after_sleep());
  }

  test::TempDir dir_;
  test::ScopedVariable environment_{"FO_LIBEXEC_DIR", dir_.path()};
  test::TestLoop loop_;
  loop::Children children_{loop_.io()};
};

TEST_F(DeviceGateTest, LearnsWhatTheEngineGaveBack) {
  DeviceGate gate = this->gate(std::nullopt);
  sleep(gate, 100, 300);
  EXPECT_THAT(gate.wanted(), ElementsAre(200 * kMiB));
  have_free(200);
  EXPECT_TRUE(loop_.run(gate.wait(soon())));
}

TEST_F(DeviceGateTest, TheMostThatWasGivenBackCounts) {
  DeviceGate gate = this->gate(std::nullopt);
  sleep(gate, 100, 300);
  sleep(gate, 300, 300);
  EXPECT_THAT(gate.wanted(), ElementsAre(200 * kMiB));
  sleep(gate, 100, 310);
  EXPECT_THAT(gate.wanted(), ElementsAre(210 * kMiB));
}

TEST_F(DeviceGateTest, NothingGivenBackIsNothingToWaitFor) {
  DeviceGate gate = this->gate(std::nullopt);
  // Another process may have allocated memory meanwhile.
  sleep(gate, 300, 100);
  EXPECT_THAT(gate.wanted(), ElementsAre(0));
  const std::string before = asked();
  EXPECT_FALSE(loop_.run(gate.wait(soon())));
  EXPECT_EQ(asked(), before);
}

TEST_F(DeviceGateTest, ZeroAsksNobody) {
  DeviceGate gate = this->gate(0);
  EXPECT_TRUE(gate.is_known());
  loop_.run(gate.check());
  EXPECT_FALSE(loop_.run(gate.wait(soon())));
  EXPECT_EQ(asked(), "");
}

TEST_F(DeviceGateTest, AGivenSizeIsWaitedFor) {
  DeviceGate gate = this->gate(64 * kMiB);
  EXPECT_TRUE(gate.is_known());
  have_free(10);
  // Another engine may have the memory now.
  loop_.run(gate.check());
  EXPECT_EQ(asked(), "free --device 0 --until-free 67108864 --timeout 0s\n");
  answer("if [ -e " + dir_.path("again") + " ]; then say 64; else : >" + dir_.path("again") +
         "; say 63; exit 75; fi");
  EXPECT_TRUE(loop_.run(gate.wait(soon())));
  // Once the uuid is known, it is in the query.
  EXPECT_THAT(asked(), HasSubstr("free --device 0 --until-free 67108864 --timeout 250ms --uuid "
                                 "GPU-0\nfree --device 0 --until-free 67108864"));
}

TEST_F(DeviceGateTest, MemoryThatIsNotFreeInTimeIsTryAgain) {
  DeviceGate gate = this->gate(64 * kMiB);
  have_free(10);
  const auto failure = failure_of([&] { loop_.run(gate.wait(in_ms(1))); });
  EXPECT_EQ(failure.status, ExitStatus::kTryAgain);
  EXPECT_EQ(failure.message, "wait for device memory: device 0 has 10 MiB free, 64 MiB needed");
}

TEST_F(DeviceGateTest, EveryDeviceHasASizeOfItsOwn) {
  DeviceGate gate = this->gate(std::nullopt, {base::DeviceOrdinal(0), base::DeviceOrdinal(3)});
  answer("case $device in 0) say 10;; 3) say 20;; esac");
  loop_.run(gate.before_sleep());
  answer("case $device in 0) say 15;; 3) say 90;; esac");
  loop_.run(gate.after_sleep());
  EXPECT_THAT(gate.wanted(), ElementsAre(5 * kMiB, 70 * kMiB));
  answer("case $device in 0) say 5;; 3) say 69; exit 75;; esac");
  const auto failure = failure_of([&] { loop_.run(gate.wait(in_ms(1))); });
  EXPECT_THAT(failure.message, HasSubstr("device 3 has 69 MiB free, 70 MiB needed"));
  have_free(70);
  EXPECT_TRUE(loop_.run(gate.wait(soon())));
}

TEST_F(DeviceGateTest, WhereNobodyCanTellThereIsNoGate) {
  DeviceGate gate = this->gate(std::nullopt);
  loop_.run(gate.before_sleep());
  loop_.run(gate.after_sleep());
  EXPECT_FALSE(loop_.run(gate.wait(soon())));
  answer("echo 'fo-gpu: error: no driver' >&2; exit 69");
  loop_.run(gate.before_sleep());
  have_free(300);
  loop_.run(gate.after_sleep());
  EXPECT_FALSE(loop_.run(gate.wait(soon())));
}

TEST_F(DeviceGateTest, ADeviceThatAnswersOnlyOnceGatesNothing) {
  DeviceGate gate = this->gate(std::nullopt);
  have_free(100);
  loop_.run(gate.before_sleep());
  answer("exit 69");
  loop_.run(gate.after_sleep());
  EXPECT_FALSE(loop_.run(gate.wait(soon())));
}

TEST_F(DeviceGateTest, AGivenSizeThatNobodyCanTellIsAFailure) {
  DeviceGate gate = this->gate(64 * kMiB);
  const auto absent = failure_of([&] { loop_.run(gate.check()); });
  EXPECT_EQ(absent.status, ExitStatus::kUnavailable);
  EXPECT_THAT(absent.message, StartsWith("use helper program '" + dir_.path("fo-gpu")));
  answer("echo 'fo-gpu: error: no driver' >&2; exit 69");
  const auto none = failure_of([&] { loop_.run(gate.check()); });
  EXPECT_EQ(none.status, ExitStatus::kUnavailable);
  EXPECT_EQ(none.message, "query the free memory of device 0: no driver");
  EXPECT_EQ(failure_of([&] { loop_.run(gate.wait(soon())); }).status, ExitStatus::kUnavailable);
}

TEST_F(DeviceGateTest, AGivenSizeThatNoDeviceHasIsRefusedBeforeTheWait) {
  DeviceGate gate = this->gate(64 * kMiB, {base::DeviceOrdinal(0), base::DeviceOrdinal(1)});
  answer(
      "[ $device = 0 ] || { echo 'fo-gpu: error: it has 32 MiB' >&2; exit 64; }; say 10; exit 75");
  const auto failure = failure_of([&] { loop_.run(gate.check()); });
  EXPECT_EQ(failure.status, ExitStatus::kUsage);
  EXPECT_EQ(failure.message, "query the free memory of device 1: it has 32 MiB");
}

TEST_F(DeviceGateTest, NothingIsCheckedBeforeTheEngineGaveSomethingBack) {
  DeviceGate gate = this->gate(std::nullopt);
  EXPECT_FALSE(gate.is_known());
  loop_.run(gate.check());
  EXPECT_EQ(asked(), "");
}

TEST_F(DeviceGateTest, AHelperThatFailsIsNamed) {
  DeviceGate gate = this->gate(64 * kMiB);
  answer("echo nonsense");
  const auto nonsense = failure_of([&] { loop_.run(gate.wait(soon())); });
  EXPECT_EQ(nonsense.status, ExitStatus::kSoftware);
  EXPECT_EQ(nonsense.message, "query the free memory of device 0: fo-gpu gave no answer");
  answer("kill -SEGV $$");
  const auto died = failure_of([&] { loop_.run(gate.wait(soon())); });
  EXPECT_EQ(died.status, ExitStatus::kSoftware);
  EXPECT_THAT(died.message, HasSubstr("139"));
}

// Status 126 means that the program cannot be run.
TEST_F(DeviceGateTest, AHelperThatCannotRunIsNotAvailable) {
  std::ofstream(dir_.path("fo-gpu")) << "#!/absent/interpreter\n";
  ASSERT_EQ(::chmod(dir_.path("fo-gpu").c_str(), 0700), 0);
  DeviceGate given = this->gate(64 * kMiB);
  EXPECT_EQ(failure_of([&] { loop_.run(given.check()); }).status, ExitStatus::kUnavailable);
  EXPECT_EQ(failure_of([&] { loop_.run(given.wait(soon())); }).status, ExitStatus::kUnavailable);
}

}  // namespace
}  // namespace fo::engine
