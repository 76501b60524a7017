#include "pod/finding.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::pod {
namespace {

TEST(Finding, NamesFilePlaceFieldReasonAndRemedy) {
  EXPECT_EQ(format({Severity::kError, {3, 7}, "a.b", "2: why", "do that"}, "f.yaml"),
            "f.yaml:3:7: a.b: 2: why; do that");
}

TEST(Finding, LeavesOutWhatThereIsNot) {
  EXPECT_EQ(format({Severity::kError, {}, "a.b", "why", ""}, "f"), "f: a.b: why");
  EXPECT_EQ(format({Severity::kError, {1, 1}, "", "why", ""}, "f"), "f:1:1: why");
}

TEST(Finding, PathsQuoteWhatIsNoSimpleKey) {
  EXPECT_EQ(member_path("", "spec"), "spec");
  EXPECT_EQ(member_path("spec", "services"), "spec.services");
  EXPECT_EQ(member_path("limits", "nvidia.com/gpu"), "limits['nvidia.com/gpu']");
  EXPECT_EQ(member_path("labels", ""), "labels['']");
  EXPECT_EQ(member_path("labels", "a\x1b[m"), "labels['a\\x1b[m']");
  EXPECT_EQ(member_path("labels", "a\xc2\x85\xc2\x9bü"), "labels['a\\u0085\\u009bü']");
  EXPECT_EQ(member_path("labels", "a\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6\xef\xbb\xbf"),
            "labels['a\\u2028\\u202e\\u2066\\ufeff']");
  EXPECT_EQ(member_path("labels", "\xff"), "labels['\\xff']");
  EXPECT_EQ(item_path("containers", 2), "containers[2]");
}

TEST(Finding, PathsAreShortWhateverTheKey) {
  EXPECT_LT(member_path("labels", std::string(1 << 20, 'a')).size(), 300U);
}

TEST(Finding, PastTheMostOnlyAFirstErrorIsAdded) {
  Findings findings;
  const Finding warning{Severity::kWarning, {}, "a", "b", ""};
  const Finding error{Severity::kError, {}, "a", "b", ""};
  for (std::size_t i = 0; i < 2 * kMaxFindings; ++i) add(findings, warning);
  EXPECT_EQ(findings.size(), kMaxFindings);
  EXPECT_FALSE(has_error(findings));
  add(findings, error);
  add(findings, error);
  EXPECT_EQ(findings.size(), kMaxFindings + 1);
  EXPECT_TRUE(has_error(findings));
}

}  // namespace
}  // namespace fo::pod
