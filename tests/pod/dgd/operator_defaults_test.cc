#include "pod/dgd/operator_defaults.h"

#include <gtest/gtest.h>

#include <string>

#include "pod/pod_fixture.h"

namespace fo::pod {
namespace {

using test::Generated;
using test::Worker;

Worker worker_with_defaults() {
  Worker worker;
  worker.operator_defaults = true;
  return worker;
}

std::string text_at(const Generated& made, std::initializer_list<std::string_view> keys) {
  const yaml::Node* found = made.pod_spec().find_path(keys);
  return found == nullptr ? "(none)" : found->text();
}

std::string memory_of(const Generated& made, std::string_view container) {
  const yaml::Node of = made.container(container);
  const yaml::Node* mount = yaml::find_named(of.find("volumeMounts"), "mountPath", "/dev/shm");
  if (mount == nullptr) return "(none)";
  const yaml::Node* volume =
      yaml::find_named(made.pod_spec().find("volumes"), "name", mount->text_at({"name"}));
  return volume->text_at({"emptyDir", "medium"}) + " " + volume->text_at({"emptyDir", "sizeLimit"});
}

std::string label(const Generated& made, std::string_view key) {
  const yaml::Node* found =
      made.workload().find_path({"spec", "template", "metadata", "labels", key});
  return found == nullptr ? "(none)" : found->text();
}

TEST(OperatorDefaults, AreGivenToThePod) {
  const Generated made = worker_with_defaults().generate();
  ASSERT_EQ(made.errors(), "");
  for (const char* const engine : {"engine-0", "engine-1"}) {
    EXPECT_EQ(memory_of(made, engine), "Memory 8Gi");
  }
  EXPECT_EQ(memory_of(made, "gms-weights"), "(none)");
  EXPECT_EQ(text_at(made, {"terminationGracePeriodSeconds"}), "60");
  EXPECT_EQ(text_at(made, {"securityContext", "fsGroup"}), "1000");
  EXPECT_EQ(label(made, "nvidia.com/metrics-enabled"), "true");
  EXPECT_EQ(label(made, "nvidia.com/selector"), "vllm-decode");
}

TEST(OperatorDefaults, LeaveWhatTheUserSaysAlone) {
  Worker worker = worker_with_defaults();
  worker.main += R"(,"volumeMounts":[{"name":"m","mountPath":"/dev/shm"}])";
  worker.spec =
      R"("volumes":[{"name":"m","emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}}],
         "terminationGracePeriodSeconds":7,"securityContext":{"runAsUser":5})";
  worker.metadata =
      R"({"labels":{"nvidia.com/metrics-enabled":"false","nvidia.com/selector":"x"}})";
  const Generated made = worker.generate();
  EXPECT_EQ(memory_of(made, "engine-0"), "Memory 1Gi");
  EXPECT_EQ(text_at(made, {"terminationGracePeriodSeconds"}), "7");
  EXPECT_EQ(text_at(made, {"securityContext", "fsGroup"}), "(none)");
  EXPECT_EQ(label(made, "nvidia.com/metrics-enabled"), "false");
  EXPECT_EQ(label(made, "nvidia.com/selector"), "x");
  // The user's own setting for no memory there, too.
  Worker none = worker_with_defaults();
  none.service.wants_no_shared_memory = true;
  EXPECT_EQ(memory_of(none.generate(), "engine-0"), "(none)");
  // A volume of that name, mounted elsewhere.
  Worker taken = worker_with_defaults();
  taken.spec = R"("volumes":[{"name":"shared-memory","emptyDir":{}}])";
  const Generated other = taken.generate();
  EXPECT_EQ(memory_of(other, "engine-0"), "(none)");
  EXPECT_NE(other.warnings().find("'shared-memory': the volume at /dev/shm would have this name"),
            std::string::npos);
}

TEST(OperatorDefaults, AreLeftOutWhereTheyAreNotWanted) {
  Worker worker;
  const Generated made = worker.generate();
  EXPECT_EQ(memory_of(made, "engine-0"), "(none)");
  EXPECT_EQ(text_at(made, {"terminationGracePeriodSeconds"}), "(none)");
  EXPECT_EQ(text_at(made, {"securityContext", "fsGroup"}), "(none)");
  EXPECT_EQ(label(made, "nvidia.com/metrics-enabled"), "(none)");
}

}  // namespace
}  // namespace fo::pod
