// Choosing and loading a driver, and its errors.
#include "cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/device.h"
#include "cuda/memory.h"
#include "cuda/sim_folder.h"
#include "support/failure.h"

namespace fo::cuda {
namespace {

using base::ExitStatus;
using test::failure_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DriverTest : public ::testing::Test {
 protected:
  SimFolder sim_;
};

TEST_F(DriverTest, ChoiceComesFromTheEnvironment) {
  sim_.set("GMS_DRIVER", "sim");
  EXPECT_EQ(Driver::choice_from_env(), "sim");
  sim_.set("GMS_DRIVER", "");
  EXPECT_EQ(Driver::choice_from_env(), "auto");
  sim_.unset("GMS_DRIVER");
  EXPECT_EQ(Driver::choice_from_env(), "auto");
}

TEST_F(DriverTest, SimOpensTheSimulatedDriver) {
  const auto driver = Driver::open("sim");
  EXPECT_TRUE(driver->simulated());
  EXPECT_EQ(device_count(*driver), 2);
}

TEST_F(DriverTest, SimIsFoundFromTheProgram) {
  sim_.unset("GMS_SIM_LIBRARY");
  EXPECT_TRUE(Driver::open("sim")->simulated());
}

TEST_F(DriverTest, PathOpensThatFile) {
  const auto driver = Driver::open(FO_BUILD_DIR "/lib/sim/libcuda.so.1");
  EXPECT_TRUE(driver->simulated());
}

TEST_F(DriverTest, AnyOtherChoiceIsAnErrorOfConfiguration) {
  const auto [status, message] = failure_of([] { Driver::open("simulated"); });
  EXPECT_EQ(status, ExitStatus::kConfig);
  EXPECT_EQ(message, "driver 'simulated': not auto, cuda, sim or a path");
}

TEST_F(DriverTest, AutoNeverGivesTheSimulatedDriver) {
  // Its name is libcuda.so.1, so once loaded it is found under the name of the real one.
  const auto simulated = Driver::open("sim");
  for (const char* choice : {"auto", "cuda"}) {
    const auto [status, message] = failure_of([&] { Driver::open(choice); });
    EXPECT_EQ(status, ExitStatus::kUnavailable);
    EXPECT_THAT(message, HasSubstr("GMS_DRIVER=sim selects the simulated one"));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
  }
}

TEST_F(DriverTest, NoSuchLibraryIsUnavailable) {
  const auto [status, message] = failure_of([] { Driver::open("/nonexistent/libcuda.so.1"); });
  EXPECT_EQ(status, ExitStatus::kUnavailable);
  EXPECT_THAT(message, AllOf(HasSubstr("no CUDA driver"), HasSubstr("/nonexistent/libcuda.so.1")));
}

TEST_F(DriverTest, LibraryThatIsNoDriverIsUnavailable) {
  const auto [status, message] =
      failure_of([] { Driver::open("/lib/x86_64-linux-gnu/libc.so.6"); });
  EXPECT_EQ(status, ExitStatus::kUnavailable);
  EXPECT_THAT(message, HasSubstr("missing function cuInit"));
}

TEST_F(DriverTest, NoDeviceIsUnavailable) {
  sim_.set("CUDA_VISIBLE_DEVICES", "");
  const auto [status, message] = failure_of([] { Driver::open("sim"); });
  EXPECT_EQ(status, ExitStatus::kUnavailable);
  EXPECT_THAT(message, HasSubstr("CUDA_ERROR_NO_DEVICE (100)"));
}

TEST_F(DriverTest, DriversThatAreTooOldAndMpsHaveStatusesOfTheirOwn) {
  const auto of_count = [&](int code) {
    sim_.set("GMS_SIM_FAULTS", "cuDeviceGetCount:1=" + std::to_string(code));
    sim_.fresh_library();
    const auto driver = Driver::open("sim");
    return failure_of([&] { device_count(*driver); }).status;
  };
  const auto of_init = [&](int code) {
    sim_.set("GMS_SIM_FAULTS", "cuInit:1=" + std::to_string(code));
    sim_.fresh_library();
    return failure_of([] { Driver::open("sim"); }).status;
  };
  for (const int code : {35, 36, 37}) {
    EXPECT_EQ(of_count(code), ExitStatus::kUnavailable) << code;
    EXPECT_EQ(of_init(code), ExitStatus::kUnavailable) << code;
  }
  for (int code = 805; code <= 810; ++code) {
    EXPECT_EQ(of_count(code), ExitStatus::kTryAgain) << code;
    EXPECT_EQ(of_init(code), ExitStatus::kTryAgain) << code;
  }
  EXPECT_EQ(of_count(811), ExitStatus::kSoftware);
  EXPECT_EQ(of_init(811), ExitStatus::kUnavailable);
}

TEST_F(DriverTest, ErrorsHaveTheirResultStatusAndName) {
  const auto driver = Driver::open("sim");
  const auto status_of = [&](unsigned result) {
    return test::status_of([&] { driver->check(abi::Result{result}, "cuWhat"); });
  };
  EXPECT_EQ(status_of(0), ExitStatus::kOk);
  EXPECT_EQ(status_of(1), ExitStatus::kSoftware);
  EXPECT_EQ(status_of(2), ExitStatus::kTryAgain);
  for (const unsigned gone : {3u, 46u, 100u, 101u})
    EXPECT_EQ(status_of(gone), ExitStatus::kUnavailable);
  EXPECT_EQ(status_of(700), ExitStatus::kSoftware);

  EXPECT_EQ(failure_of([&] { driver->fail(abi::Result::kIllegalAddress, "cuWhat 4 KiB"); }).message,
            "cuWhat 4 KiB: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  EXPECT_THROW(driver->fail(abi::Result::kOutOfMemory, "cuWhat"), OutOfMemory);
  EXPECT_THAT(failure_of([&] { driver->fail(abi::Result{4321}, "cuWhat"); }).message,
              HasSubstr("(4321)"));
}

TEST_F(DriverTest, CheckMakesItsMessageOnlyForAFailure) {
  const auto driver = Driver::open("sim");
  bool made = false;
  const auto what = [&] {
    made = true;
    return std::string("cuWhat");
  };
  driver->check(abi::Result::kSuccess, what);
  EXPECT_FALSE(made);
  EXPECT_THROW(driver->check(abi::Result::kInvalidValue, what), CudaError);
  EXPECT_TRUE(made);
}

}  // namespace
}  // namespace fo::cuda
