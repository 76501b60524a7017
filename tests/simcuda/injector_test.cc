// Counting of calls, and the selection of those that fail.
#include "simcuda/injector.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <stdexcept>
#include <string>

#include "cuda/child.h"
#include "simcuda/result.h"

namespace fo::simcuda {
namespace {

/// The results of calls 1, 2, … of `function`, as digits: 0 is success.
std::string results(Injector& injector, const char* function, int calls) {
  std::string all;
  for (int i = 0; i < calls; ++i) {
    unsigned result = 0;
    try {
      injector.enter(function);
    } catch (const Failure& failure) {
      result = static_cast<unsigned>(failure.result);
    }
    all += std::to_string(result);
  }
  return all;
}

TEST(Injector, FailsTheCallsThatAreNamed) {
  Injector injector(parse_faults("cuOne:2=oom,cuOne:4=1,cuTwo:3+=2,cuThree:*=1"), {});
  EXPECT_EQ(results(injector, "cuOne", 5), "02010");
  EXPECT_EQ(results(injector, "cuTwo", 5), "00222");
  EXPECT_EQ(results(injector, "cuThree", 3), "111");
  EXPECT_EQ(results(injector, "cuFour", 3), "000");
}

TEST(Injector, VersionsOfAFunctionAreOneFunction) {
  Injector injector(parse_faults("cuMemGetInfo:2=oom"), {});
  EXPECT_EQ(results(injector, "cuMemGetInfo_v2", 3), "020");
}

TEST(Injector, FindsMisspelledFunctions) {
  const Injector injector(parse_faults("cuMemMap:1=oom"), parse_latencies("cuMemMpa=1us"));
  EXPECT_EQ(injector.find_unknown([](const std::string& name) { return name == "cuMemMap"; }),
            "cuMemMpa");
  EXPECT_EQ(injector.find_unknown([](const std::string&) { return true; }), "");
}

TEST(Injector, KillEndsTheProcess) {
  EXPECT_EQ(cuda::in_child([] {
              Injector injector(parse_faults("cuOne:1=kill"), {});
              injector.enter("cuOne");
            }),
            128 + SIGKILL);
}

TEST(Injector, HangNeverReturns) {
  cuda::Child child([](cuda::Channel& test) {
    Injector injector(parse_faults("cuOne:1=hang"), {});
    test.send(1);
    injector.enter("cuOne");
    test.send(2);
  });
  child.channel().expect(1);
  cuda::wait_until_asleep(child.pid());
  child.kill();
  EXPECT_THROW(static_cast<void>(child.channel().receive()), std::runtime_error);
}

}  // namespace
}  // namespace fo::simcuda
