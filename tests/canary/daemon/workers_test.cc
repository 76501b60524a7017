#include "canary/daemon/workers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace fo::canary {
namespace {

// Why these files are refused; empty if they are not.
std::string files_refusal(std::vector<CanaryFile> files) {
  try {
    Workers workers({.writer = "test"}, std::move(files), {});
    EXPECT_EQ(workers.files().size(), 2U);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kUsage);
    return error.what();
  }
  return {};
}

TEST(Workers, TwoFilesForTheSameWorkersAreRefused) {
  const CanaryFile carded{.model = "a", .card = "sha256:00"};
  EXPECT_EQ(files_refusal({carded, {.model = "b", .card = "sha256:00"}}),
            "canaries for card 'sha256:00': two files are for the same workers");
  EXPECT_EQ(files_refusal({{.model = "a"}, {.model = "a"}}),
            "canaries for model 'a': two files are for the same workers");
  EXPECT_EQ(files_refusal({carded, {.model = "a", .card = "sha256:01"}}), "");
  EXPECT_EQ(files_refusal({carded, {.model = "a"}}), "");
  EXPECT_EQ(files_refusal({{.model = "a"}, {.model = "b"}}), "");
}

}  // namespace
}  // namespace fo::canary
