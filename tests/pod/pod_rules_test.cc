#include "pod/pod_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/pod/dgd_text.h"

namespace fo::pod {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The findings for a pod with these containers and volumes.
std::vector<std::string> found(const std::string& containers, const std::string& more = "",
                               Severity severity = Severity::kError) {
  const yaml::Node pod = parse("containers: " + containers + "\n" + more + "\n");
  const Located at{&pod, "spec"};
  PodParts parts;
  parts.containers = items_of(at.member("containers"));
  parts.volumes = at.member("volumes");
  parts.resource_claims = at.member("resourceClaims");
  parts.restart_policy = at.member("restartPolicy");
  Findings findings;
  check_pod(parts, findings);
  return lines(findings, severity);
}

TEST(PodRules, QuantitiesAreKubernetes) {
  for (const char* good :
       {"0", "2", "+2", "1.5", "1.", ".5", "500m", "8Gi", "1e3", "1E-3", "1E", "2Ki", "100n"}) {
    EXPECT_TRUE(is_quantity(good)) << good;
  }
  for (const char* bad : {"", "-1", "two", "8GB", "8gi", "1.2.3", ".", "Gi", "1 Gi", "1e", "1e+",
                          "1e1000000", "0x10", "++1", "1ii"}) {
    EXPECT_FALSE(is_quantity(bad)) << bad;
  }
}

TEST(PodRules, LabelsAndPortNamesHaveTheirLimits) {
  EXPECT_TRUE(is_dns_label(std::string(63, 'a')));
  EXPECT_FALSE(is_dns_label(std::string(64, 'a')));
  for (const char* bad : {"", "-a", "a-", "A", "a_b", "a.b", "a b", "\xc3\xa4"}) {
    EXPECT_FALSE(is_dns_label(bad)) << bad;
  }
  EXPECT_TRUE(is_port_name("system-0"));
  EXPECT_TRUE(is_port_name("0123456789abcde"));
  for (const char* bad : {"", "0123456789abcdef", "123", "a--b", "-a", "a-", "Http", "a_b"}) {
    EXPECT_FALSE(is_port_name(bad)) << bad;
  }
}

TEST(PodRules, ASoundPodHasNothingToSay) {
  EXPECT_THAT(
      found("[{name: a, image: i, ports: [{containerPort: 80, name: http}], env: [{name: A.b-C,"
            " value: x}, {name: B, valueFrom: {fieldRef: {fieldPath: p}}}], volumeMounts: [{name:"
            " v, mountPath: /v}], livenessProbe: {httpGet: {port: http}}, readinessProbe: {exec:"
            " {command: [x]}}, startupProbe: {grpc: {port: 9}}, resources: {claims: [{name: c}]}}]",
            "volumes: [{name: v, emptyDir: {}}]\n"
            "resourceClaims: [{name: c, resourceClaimName: d}]\nrestartPolicy: Always"),
      IsEmpty());
}

TEST(PodRules, ContainersHaveNamesOfTheirOwnAndImages) {
  EXPECT_THAT(found("[{image: i}]"),
              ElementsAre("spec.containers[0]: a container without a name; set name"));
  EXPECT_THAT(found("[{name: a}]"), ElementsAre("spec.containers[0]: no image; set image"));
  EXPECT_THAT(found("[{name: A_b, image: i}]"),
              ElementsAre("spec.containers[0].name: 'A_b': not a container name; at most 63 of "
                          "a-z, 0-9 and -, no - at either end"));
  EXPECT_THAT(
      found("[{name: a, image: i}, {name: a, image: i}]"),
      ElementsAre("spec.containers[1].name: 'a': two containers with one name; rename one of "
                  "them"));
}

TEST(PodRules, PortsAreInRangeAndNamedOnce) {
  const auto ports = [](const std::string& list) {
    return found("[{name: a, image: i, ports: " + list + "}]");
  };
  EXPECT_THAT(
      ports("[{containerPort: 0}, {containerPort: 65536}, {containerPort: -1}, {}]"),
      ElementsAre("spec.containers[0].ports[0].containerPort: 0: not a port; 1 to 65535",
                  "spec.containers[0].ports[1].containerPort: 65536: not a port; 1 to 65535",
                  "spec.containers[0].ports[2].containerPort: -1: not a port; 1 to 65535",
                  "spec.containers[0].ports[3]: a port without a number; set containerPort"));
  EXPECT_THAT(ports("[{containerPort: 1, hostPort: 70000}]"),
              ElementsAre("spec.containers[0].ports[0].hostPort: 70000: not a port; 1 to 65535"));
  EXPECT_THAT(ports("[{containerPort: 1, name: p}, {containerPort: 2, name: p}]"),
              ElementsAre("spec.containers[0].ports[1].name: 'p': two ports with one name; rename "
                          "one of them"));
  EXPECT_THAT(ports("[{containerPort: 1, name: a-name-too-long}]").size(), 0U);
  EXPECT_THAT(ports("[{containerPort: 1, name: a-name-too-long-}]").size(), 1U);
  EXPECT_THAT(ports("[{containerPort: 1, protocol: tcp}]"),
              ElementsAre("spec.containers[0].ports[0].protocol: 'tcp': unknown protocol; TCP, "
                          "UDP or SCTP"));
  EXPECT_THAT(found("[{name: a, image: i, ports: [{containerPort: 1}, {containerPort: 1, protocol:"
                    " TCP}, {containerPort: 1, protocol: UDP}]}]",
                    "", Severity::kWarning),
              ElementsAre("spec.containers[0].ports[1].containerPort: '1': the same port twice; "
                          "leave one of them out"));
}

TEST(PodRules, EnvHasNamesAndOneValueEach) {
  const auto env = [](const std::string& list, Severity severity = Severity::kError) {
    return found("[{name: a, image: i, env: " + list + "}]", "", severity);
  };
  EXPECT_THAT(env("[{value: x}]"),
              ElementsAre("spec.containers[0].env[0]: a variable without a name; printable "
                          "characters, without ="));
  EXPECT_THAT(env("[{name: A=B}, {name: ''}, {name: \"a\\tb\"}]").size(), 3U);
  EXPECT_THAT(env("[{name: A, value: x, valueFrom: {fieldRef: {fieldPath: p}}}]"),
              ElementsAre("spec.containers[0].env[0].value: value and valueFrom at once; leave one "
                          "of them out"));
  EXPECT_THAT(env("[{name: A, value: x}, {name: A, value: y}]"), IsEmpty());
  EXPECT_THAT(env("[{name: A, value: x}, {name: A, value: y}]", Severity::kWarning),
              ElementsAre("spec.containers[0].env[1].name: 'A': set twice, the last one wins; "
                          "leave one of them out"));
}

TEST(PodRules, MountsNameVolumesAndHavePlacesOfTheirOwn) {
  EXPECT_THAT(found("[{name: a, image: i, volumeMounts: [{name: w, mountPath: /w}]}]",
                    "volumes: [{name: v, emptyDir: {}}]"),
              ElementsAre("spec.containers[0].volumeMounts[0].name: 'w': not a volume of the pod; "
                          "name one of its volumes"));
  EXPECT_THAT(
      found("[{name: a, image: i, volumeMounts: [{name: v, mountPath: /v}, {name: v,"
            " mountPath: /v}, {name: v}, {name: v, mountPath: 'a:b'}]}]",
            "volumes: [{name: v, emptyDir: {}}]"),
      ElementsAre("spec.containers[0].volumeMounts[1].mountPath: '/v': two mounts at one path; "
                  "leave one of them out",
                  "spec.containers[0].volumeMounts[2]: a mount without a path; set mountPath",
                  "spec.containers[0].volumeMounts[3].mountPath: 'a:b': a path with ':' in it; "
                  "choose another path"));
  EXPECT_THAT(
      found("[]",
            "volumes: [{name: v, a: {}}, {name: v, a: {}}, {a: {}}, {name: V, a: {}}, "
            "{name: w, a: null}]"),
      ElementsAre(
          "spec.volumes[1].name: 'v': two volumes with one name; rename one of them",
          "spec.volumes[2]: a volume without a name; set name",
          "spec.volumes[3].name: 'V': not a volume name; at most 63 of a-z, 0-9 "
          "and -, no - at either end",
          "spec.volumes[4]: a volume without a source; set its source, such as emptyDir: {}"));
}

TEST(PodRules, LabelsHaveNamesAndValuesOfTheirOwnKind) {
  const auto labels = [](const std::string& text) {
    const yaml::Node map = parse(text);
    Findings findings;
    check_labels({&map, "labels"}, findings);
    return lines(findings, Severity::kError);
  };
  EXPECT_THAT(labels("{a: b, example.com/a_B.c-d: '', A: \"0.1\"}"), IsEmpty());
  EXPECT_THAT(labels("{a: b c, b: -x, c: " + std::string(64, 'x') + "}").size(), 3U);
  EXPECT_THAT(labels("{'': a, /a: a, a/: a, a/b/c: a, A.b/c: a, -a: a}").size(), 6U);
  EXPECT_THAT(labels("[a]"), IsEmpty());
}

TEST(PodRules, ProbesAskOneThingOfAPortThatIsThere) {
  const auto probe = [](const std::string& text) {
    return found("[{name: a, image: i, ports: [{containerPort: 80, name: http}], livenessProbe: " +
                 text + "}]");
  };
  EXPECT_THAT(probe("{httpGet: {port: htp}}"),
              ElementsAre("spec.containers[0].livenessProbe.httpGet.port: 'htp': not a port of "
                          "this container; name one of its ports, or use a number"));
  EXPECT_THAT(probe("{tcpSocket: {port: 0}}"),
              ElementsAre("spec.containers[0].livenessProbe.tcpSocket.port: 0: not a port; 1 to "
                          "65535"));
  EXPECT_THAT(probe("{httpGet: {path: /}}"),
              ElementsAre("spec.containers[0].livenessProbe.httpGet: missing port; set port"));
  EXPECT_THAT(probe("{periodSeconds: 3}"),
              ElementsAre("spec.containers[0].livenessProbe: a probe without a handler; set one of "
                          "exec, grpc, httpGet and tcpSocket"));
  EXPECT_THAT(probe("{exec: {command: [x]}, httpGet: {port: 80}}"),
              ElementsAre("spec.containers[0].livenessProbe: a probe with two handlers; set one of "
                          "exec, grpc, httpGet and tcpSocket"));
}

TEST(PodRules, ClaimsAreThereAndByOneName) {
  EXPECT_THAT(found("[{name: a, image: i, resources: {claims: [{name: c}]}}]"),
              ElementsAre("spec.containers[0].resources.claims[0].name: 'c': not a claim of the "
                          "pod; name one of resourceClaims"));
  EXPECT_THAT(found("[]",
                    "resourceClaims: [{name: a}, {name: b, resourceClaimName: x, "
                    "resourceClaimTemplateName: y}]")
                  .size(),
              2U);
}

TEST(PodRules, AnEngineHasToComeBack) {
  EXPECT_THAT(found("[]", "restartPolicy: Never"),
              ElementsAre("spec.restartPolicy: 'Never': a dead engine must be restarted; leave it "
                          "out, or set it to Always"));
}

TEST(PodRules, WhatIsNoPodIsPassedOver) {
  for (const char* text :
       {"[]", "[5, null, [a], {name: [a]}]", "{a: b}", "[{name: {a: b}, image: [i]}]",
        "[{name: a, image: i, ports: [5, [1], {containerPort: [1], name: {}}]}]",
        "[{name: a, image: i, env: {A: b}, volumeMounts: x, livenessProbe: [1], resources: 3}]",
        "[{name: a, image: i, livenessProbe: {httpGet: 5, exec: []}}]"}) {
    EXPECT_NO_THROW(found(text, "volumes: {a: b}\nresourceClaims: 5\nrestartPolicy: [a]")) << text;
  }
}

}  // namespace
}  // namespace fo::pod
