#include "canary/daemon/workers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "canary/watched.h"

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

TEST(Workers, AConvictionInTheRegistryCountsMoreThanAnOlderState) {
  const std::string id(32, 'a');
  Workers workers = no_workers();
  SavedWorkers saved;
  saved[id].baselines.answer = {.average = 1, .count = 7};
  workers.load(std::move(saved));
  const fleet::Verdict conviction{.id = id, .health = fleet::HealthState::kConvicted, .weight = 0};
  workers.apply(
      {.record = {.key = fleet::verdict_key(id, "test"), .text = fleet::encode(conviction)}},
      now());
  workers.apply(instance_change(id, "m"), now());
  EXPECT_TRUE(workers.is_convicted(id));
  EXPECT_EQ(workers.all().at(id)->baselines.answer.count, 7U);
}

}  // namespace
}  // namespace fo::canary
