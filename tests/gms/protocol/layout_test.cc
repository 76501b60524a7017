#include "gms/protocol/layout.h"

#include <gtest/gtest.h>
#include <openssl/sha.h>

#include "base/hex.h"

namespace fo::gms {
namespace {

using PutResult = Layout::PutResult;

LayoutHash sha256(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return LayoutHash(base::to_hex(std::as_bytes(std::span(digest))));
}

TEST(Layout, SlotsCountUpAndAreNeverReused) {
  Layout layout;
  EXPECT_EQ(layout.add(AllocationId("a"), 1, 2, "t").layout_slot, 0u);
  EXPECT_EQ(layout.add(AllocationId("b"), 1, 2, "t").layout_slot, 1u);
  EXPECT_TRUE(layout.remove(AllocationId("b")));
  EXPECT_EQ(layout.add(AllocationId("c"), 1, 2, "t").layout_slot, 2u);
  EXPECT_FALSE(layout.remove(AllocationId("b")));
  layout.clear();
  EXPECT_EQ(layout.add(AllocationId("d"), 1, 2, "t").layout_slot, 0u);
}

TEST(Layout, RemovingAnAllocationTakesItsMetadataAlong) {
  Layout layout;
  layout.add(AllocationId("a"), 10, 16, "t");
  layout.add(AllocationId("b"), 10, 16, "t");
  layout.put("of a", AllocationId("a"), 0, "1");
  layout.put("of b", AllocationId("b"), 0, "2");
  layout.remove(AllocationId("a"));
  EXPECT_EQ(layout.metadata().size(), 1u);
  EXPECT_TRUE(layout.metadata().contains("of b"));
  EXPECT_EQ(layout.find(AllocationId("a")), nullptr);
}

TEST(Layout, MetadataMustPointIntoItsAllocation) {
  Layout layout;
  layout.add(AllocationId("a"), 10, 16, "t");
  EXPECT_EQ(layout.put("k", AllocationId("a"), 0, ""), PutResult::kDone);
  EXPECT_EQ(layout.put("k", AllocationId("a"), 15, ""), PutResult::kDone);
  EXPECT_EQ(layout.put("k", AllocationId("a"), 16, ""), PutResult::kOffsetOutOfRange);
  EXPECT_EQ(layout.put("k", AllocationId("a"), -1, ""), PutResult::kOffsetOutOfRange);
  EXPECT_EQ(layout.put("k", AllocationId("b"), 0, ""), PutResult::kUnknownAllocation);
  EXPECT_EQ(layout.metadata().at("k").offset_bytes, 15u);
  EXPECT_TRUE(layout.erase("k"));
  EXPECT_FALSE(layout.erase("k"));
}

TEST(LayoutHash, IsTheHashOfTheSpecifiedText) {
  Layout layout;
  EXPECT_EQ(layout_hash(layout), sha256(""));
  layout.add(AllocationId("x"), 5, 8, "first");
  layout.add(AllocationId("gone"), 1, 8, "t");
  layout.add(AllocationId("y"), 9, 16, "second");
  layout.remove(AllocationId("gone"));
  layout.put("b", AllocationId("x"), 4, std::string("\0v", 2));
  layout.put("a", AllocationId("y"), 0, "value");
  EXPECT_EQ(layout_hash(layout), sha256("0:5:8:first"
                                        "1:9:16:second"
                                        "a:1:0:value"
                                        "b:0:4:" +
                                        std::string("\0v", 2)));
}

TEST(Layout, CountsWhatItsRecordsTake) {
  Layout layout;
  EXPECT_EQ(layout.records(), 0u);
  layout.add(AllocationId("id"), 1, 8, "tag");
  const base::ByteCount one = layout.records();
  EXPECT_EQ(one, record_cost(5));
  layout.add(AllocationId("id2"), 1, 8, "tag");
  layout.put("key", AllocationId("id2"), 0, "value");
  EXPECT_EQ(layout.records(), one + record_cost(6) + record_cost(11));
  layout.put("key", AllocationId("id2"), 0, "v");  // replaces the value
  EXPECT_EQ(layout.records(), one + record_cost(6) + record_cost(7));
  layout.put("other", AllocationId("id"), 0, "");
  EXPECT_TRUE(layout.erase("other"));
  EXPECT_FALSE(layout.erase("other"));
  layout.put("nowhere", AllocationId("id3"), 0, "v");
  EXPECT_TRUE(layout.remove(AllocationId("id2")));  // and its key
  EXPECT_EQ(layout.records(), one);
  layout.clear();
  EXPECT_EQ(layout.records(), 0u);
}

TEST(LayoutHash, DoesNotDependOnIdsOrOnTheOrderOfPuts) {
  Layout one;
  one.add(AllocationId("a"), 5, 8, "t");
  one.put("k", AllocationId("a"), 0, "1");
  one.put("j", AllocationId("a"), 0, "2");
  Layout other;
  other.add(AllocationId("z"), 1, 8, "t");
  other.remove(AllocationId("z"));
  other.add(AllocationId("b"), 5, 8, "t");
  other.put("j", AllocationId("b"), 0, "2");
  other.put("k", AllocationId("b"), 0, "1");
  EXPECT_EQ(layout_hash(one), layout_hash(other));
  other.put("k", AllocationId("b"), 1, "1");
  EXPECT_NE(layout_hash(one), layout_hash(other));
}

}  // namespace
}  // namespace fo::gms
