#include "weights/unpublish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "snapshot_fixture.h"

namespace fo::weights {
namespace {

using gms::LockType;
using testing::StartsWith;

TEST_F(SnapshotDirectory, UnpublishWaitsForReaders) {
  const LoadReport report = publish_model();
  gms::RpcClient reader = gms::RpcClient::connect(socket_, gms::soon());
  ASSERT_TRUE(reader.request_lock(LockType::kRo, gms::soon()).grant);
  EXPECT_FALSE(unpublish(socket_, std::chrono::milliseconds(20)));
  EXPECT_EQ(state().memory_layout_hash, report.memory_layout_hash);
}

TEST_F(SnapshotDirectory, UnpublishOfNothingIsDone) {
  start();
  const auto report = unpublish(socket_, std::chrono::seconds(20));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->memory_layout_hash, gms::LayoutHash());
  EXPECT_EQ(format_text(*report), "nothing was published");
}

TEST_F(SnapshotDirectory, UnpublishDropsASealedLayoutToo) {
  start();
  {
    gms::RpcClient writer = gms::RpcClient::connect(socket_, gms::soon());
    ASSERT_TRUE(writer.request_lock(LockType::kRw, gms::soon()).grant);
    writer.allocate(5, "weights");
    writer.seal();
  }
  const auto report = unpublish(socket_, std::chrono::seconds(20));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->allocations, 1);
  EXPECT_THAT(format_text(*report), StartsWith("unpublished 1 allocation, layout "));
  ASSERT_TRUE(until([&] { return !state().has_rw_session; }));
  EXPECT_FALSE(state().layout_committed);
}

TEST(UnpublishReport, OfALayoutWithoutAHashSaysThatItWasDropped) {
  const UnpublishReport report{true, 3, {}};
  EXPECT_EQ(format_text(report), "unpublished 3 allocations, layout unknown");
  EXPECT_EQ(format_json(report), R"({"allocations": 3, "memory_layout_hash": ""})");
}

}  // namespace
}  // namespace fo::weights
