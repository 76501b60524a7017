#include "pod/generate/generate_options.h"

#include <gtest/gtest.h>

#include "support/failure.h"

namespace fo::pod {
namespace {

GenerateOptions with(std::string_view name, const std::string& value) {
  GenerateOptions options;
  set_option(options, name, value);
  return options;
}

std::string refusal(std::string_view name, const std::string& value) {
  const fo::test::Failure failure = fo::test::failure_of([&] { with(name, value); });
  EXPECT_EQ(failure.status, base::ExitStatus::kUsage);
  return failure.message;
}

TEST(GenerateOptions, AreSetByTheirNames) {
  EXPECT_EQ(with("layout", "dynamo").layout, PodLayout::kDynamo);
  EXPECT_EQ(with("kind", "pod").kind, WorkloadKind::kPod);
  EXPECT_EQ(with("gpu-sharing", "device-plugin").gpu_sharing, GpuSharing::kDevicePlugin);
  EXPECT_EQ(with("lock", "lockd").lock, LockKind::kLockd);
  EXPECT_EQ(with("gms", "upstream").gms, GmsProgram::kUpstream);
  EXPECT_EQ(with("tools-image", "i:1").tools_image, "i:1");
  EXPECT_TRUE(with("supervise", "true").supervise);
  EXPECT_EQ(with("engine", "sglang").engine, "sglang");
}

TEST(GenerateOptions, TakeKubeVersionsAsClustersSayThem) {
  for (const char* text : {"1.33", "v1.33", "1.33.4", "v1.33.1-gke.12", "1.33+"}) {
    EXPECT_EQ(with("kube-version", text).kube_version.minor, 33) << text;
  }
  for (const char* text : {"", "1", "v", "1.", "1.x", "x.33", "1.33x", "-1.33", "1.99999999999"}) {
    EXPECT_NE(refusal("kube-version", text), "") << text;
  }
}

TEST(GenerateOptions, SayWhatTheyWant) {
  EXPECT_EQ(refusal("layout", "x"), "layout 'x': expected plan or dynamo");
  EXPECT_EQ(refusal("supervise", "yes"), "supervise 'yes': expected true or false");
  EXPECT_EQ(refusal("replicas", "1").substr(0, 53),
            "'replicas': unknown option; the options are: layout, ");
}

}  // namespace
}  // namespace fo::pod
