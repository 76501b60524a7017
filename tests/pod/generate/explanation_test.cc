#include "pod/generate/explanation.h"

#include <gtest/gtest.h>

#include "pod/json_node.h"

namespace fo::pod {
namespace {

using test::node;

TEST(Explanation, DescribesWhatIsWritten) {
  EXPECT_EQ(describe(node(R"({"kind":"Deployment","metadata":{"name":"a"},"spec":{"replicas":2,
      "template":{"spec":{"containers":[{"name":"engine-0"},{"name":"engine-1"}],
      "initContainers":[{"name":"gms-weights"}]}}}})")),
            "Deployment a: 2 replicas of engine-0, engine-1, gms-weights");
  EXPECT_EQ(describe(node(R"({"kind":"Pod","metadata":{"name":"a"},
      "spec":{"containers":[{"name":"engine-0"}]}})")),
            "Pod a: engine-0");
  for (const char* const request : {R"({"exactly":{"deviceClassName":"c","count":2}})",
                                    R"({"deviceClassName":"c","count":2})"}) {
    EXPECT_EQ(describe(node(R"({"kind":"ResourceClaimTemplate","metadata":{"name":"a"},
        "spec":{"spec":{"devices":{"requests":[)" +
                            std::string(request) + "]}}}}")),
              "ResourceClaimTemplate a: 2 of the class c");
  }
  EXPECT_EQ(describe(node(R"({"kind":"PersistentVolumeClaim","metadata":{"name":"a"}})")),
            "PersistentVolumeClaim a");
}

TEST(Explanation, GivesEachServiceItsFindings) {
  Dgd dgd;
  dgd.name = "chat";
  Service first;
  first.name = "A";
  first.path = "spec.services.A";
  Service second = first;
  second.name = "AB";
  second.path = "spec.services.AB";
  dgd.services = {first, second};
  const Findings findings = {{Severity::kError, {}, "spec.services.A.failover", "a", ""},
                             {Severity::kWarning, {}, "spec.services.AB", "b", ""},
                             {Severity::kWarning, {}, "metadata.name", "c", ""}};
  const DgdExplanation explained = explain(dgd, findings);
  ASSERT_EQ(explained.services.size(), 2U);
  ASSERT_EQ(explained.services[0].findings.size(), 1U);
  EXPECT_TRUE(explained.services[0].refused);
  ASSERT_EQ(explained.services[1].findings.size(), 1U);
  EXPECT_FALSE(explained.services[1].refused);
  EXPECT_EQ(explained.findings.size(), 1U);
}

TEST(Explanation, UnknownFieldsComeFirst) {
  Dgd dgd;
  Service service;
  service.path = "spec.services.A";
  dgd.services = {service};
  const Findings findings = {
      {Severity::kWarning, {}, "metadata.name", "c", ""},
      {Severity::kWarning, {}, "spec.services.A.failovr", std::string(kUnknownField), ""}};
  const DgdExplanation explained = explain(dgd, findings);
  ASSERT_EQ(explained.findings.size(), 2U);
  EXPECT_EQ(explained.findings[0].reason, kUnknownField);
  EXPECT_TRUE(explained.services[0].findings.empty());
}

}  // namespace
}  // namespace fo::pod
