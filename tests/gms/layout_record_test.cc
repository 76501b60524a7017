#include "gms/layout_record.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace fo::gms {
namespace {

Layout some_layout() {
  Layout layout;
  layout.add("a", 5, 16, "t");
  layout.add("b", 16, 16, "u");
  layout.add("c", 16, 16, "u");
  layout.remove("b");
  layout.remove("c");
  layout.add("d", 1, 16, "");
  layout.put("k", "a", 3, std::string("\0v", 2));
  layout.remove("d");
  return layout;
}

TEST(LayoutRecord, KeepsAllThereIs) {
  const Layout layout = some_layout();
  for (const bool published : {false, true}) {
    LayoutRecord record = decode_record(encode_record(layout, layout_hash(layout), published));
    EXPECT_EQ(record.layout.allocations(), layout.allocations());
    EXPECT_EQ(record.layout.metadata(), layout.metadata());
    EXPECT_EQ(record.hash, layout_hash(layout));
    EXPECT_EQ(record.published, published);
    EXPECT_EQ(record.layout.add("e", 1, 16, "").layout_slot, 4u);
  }
}

TEST(LayoutRecord, NoTruncationAndNoOtherHashIsTaken) {
  const Layout layout = some_layout();
  const std::string bytes = encode_record(layout, layout_hash(layout), true);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_record(bytes.substr(0, size)), base::Error) << size;
  }
  EXPECT_THROW(decode_record(bytes + "x"), base::Error);
  EXPECT_THROW(decode_record(encode_record(layout, std::string(64, '0'), true)), base::Error);
}

}  // namespace
}  // namespace fo::gms
