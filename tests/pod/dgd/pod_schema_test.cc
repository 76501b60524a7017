#include "pod/dgd/pod_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> found(const std::string& text, std::string_view type,
                               Severity severity = Severity::kError) {
  Findings findings;
  check_schema(parse(text), type, "x", WrongKind::kError, findings);
  return lines(findings, severity);
}

bool is_type(std::string_view type) {
  if (type.empty()) return true;
  if (type.front() == '[' || type.front() == '{') return is_type(type.substr(1, type.size() - 2));
  static const std::set<std::string_view> kPlain = {"str", "int", "bool", "qty", "port", "map"};
  return kPlain.contains(type) || !fields_of(type).empty();
}

TEST(PodSchema, EveryTypeThatAFieldNamesIsThere) {
  std::vector<std::string_view> open = {"Dgd", "DgdAlpha", "DgdBeta", "ServiceAlpha", "Component"};
  std::set<std::string_view> seen;
  while (!open.empty()) {
    const std::string_view type = open.back();
    open.pop_back();
    if (!seen.insert(type).second) continue;
    ASSERT_FALSE(fields_of(type).empty()) << type;
    for (const SchemaField& field : fields_of(type)) {
      EXPECT_TRUE(is_type(field.type)) << type << "." << field.name << ": " << field.type;
      std::string_view inner = field.type;
      while (inner.starts_with('[') || inner.starts_with('{')) {
        inner = inner.substr(1, inner.size() - 2);
      }
      if (!fields_of(inner).empty()) open.push_back(inner);
    }
  }
  EXPECT_TRUE(seen.contains("Container"));
  EXPECT_TRUE(seen.contains("Volume"));
}

TEST(PodSchema, WarnsOfUnknownFieldsWithTheNearestOne) {
  EXPECT_THAT(found("livenesProbe: {}\nreplicas: 1\n", "ServiceAlpha", Severity::kWarning),
              ElementsAre("x.livenesProbe: unknown field; did you mean 'livenessProbe'?"));
  EXPECT_THAT(found("pvcs: [{name: a, crate: true}]\n", "DgdAlpha", Severity::kWarning),
              ElementsAre("x.pvcs[0].crate: unknown field; did you mean 'create'?"));
  EXPECT_THAT(found("example.com/thing: 1\n", "ServiceAlpha", Severity::kWarning),
              ElementsAre("x['example.com/thing']: unknown field"));
}

TEST(PodSchema, LeavesUnknownFieldsOfPodsToTheApiServer) {
  EXPECT_THAT(found("{livenesProbe: {}, containers: [{imge: i, env: [{name: a, vlaue: b}]}]}\n",
                    "PodSpec", Severity::kWarning),
              IsEmpty());
  EXPECT_THAT(found("toleratons: []\n", "ExtraPodSpec", Severity::kWarning), IsEmpty());
}

TEST(PodSchema, SaysWhatAWrongKindIsAndWhatIsWanted) {
  EXPECT_THAT(found("command: python3\n", "Container"),
              ElementsAre("x.command: 'python3': a string, expected a list"));
  EXPECT_THAT(
      found("args: [--port, 8000, yes, 1e3, 2001-01-01, [a], ~]\n", "Container"),
      ElementsAre("x.args[1]: '8000': a number, expected a string; put it in quotes",
                  "x.args[2]: 'yes': a boolean, expected a string; put it in quotes",
                  "x.args[3]: '1e3': a number, expected a string; put it in quotes",
                  "x.args[5]: a list, expected a string", "x.args[6]: a null, expected a string"));
  EXPECT_THAT(
      found("resources: [a]\nfailover: {enabled: 'true'}\nreplicas: '5'\n", "ServiceAlpha"),
      ElementsAre("x.resources: a list, expected a map",
                  "x.failover.enabled: 'true': a string, expected true or false; leave the quotes "
                  "out",
                  "x.replicas: '5': a string, expected a whole number; leave the quotes out"));
  EXPECT_THAT(found("limits: {cpu: 2, memory: 8GB, a: 500m, b: '2', d: [1]}\n", "Resources"),
              ElementsAre("x.limits.d: a list, expected a quantity; quantities are like "
                          "\"2\", \"500m\" or \"8Gi\""));
  // A variable for envsubst.
  EXPECT_THAT(
      found("resources: ${RESOURCES}\n", "Container"),
      ElementsAre("x.resources: '${RESOURCES}': a string, expected a map; fill it in first: "
                  "envsubst < FILE"));
  EXPECT_THAT(found("port: [1]\n", "HttpGet"),
              ElementsAre("x.port: a list, expected a port's number or name"));
}

TEST(PodSchema, NullIsAbsent) {
  EXPECT_THAT(found("command:\nresources: ~\nnonsense: null\nenv: []\n", "Container"), IsEmpty());
  EXPECT_THAT(found("replicas:\nnonsense: null\n", "ServiceAlpha", Severity::kWarning), IsEmpty());
}

TEST(PodSchema, LooksNoDeeperThanItKnows) {
  EXPECT_THAT(found("affinity: {anything: [1, {a: b}]}\nvolumes: [{csi: {x: 1}}]\n", "PodSpec"),
              IsEmpty());
  EXPECT_THAT(found("affinity: {anything: 1}\n", "PodSpec", Severity::kWarning), IsEmpty());
}

TEST(PodSchema, LeavesWrongKindsWhereItIsToldTo) {
  Findings findings;
  check_schema(parse("replicas: a\nreplcas: 5\n"), "ServiceAlpha", "x", WrongKind::kIgnore,
               findings);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_EQ(findings[0].position.line, 2);
}

}  // namespace
}  // namespace fo::pod
