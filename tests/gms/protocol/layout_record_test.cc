#include "gms/protocol/layout_record.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "gms/protocol/layout_hash.h"
#include "os/file/file.h"

namespace fo::gms {
namespace {

Layout some_layout() {
  Layout layout;
  layout.add(AllocationId("a"), 5, 16, "t");
  layout.add(AllocationId("b"), 16, 16, "u");
  layout.add(AllocationId("c"), 16, 16, "u");
  layout.remove(AllocationId("b"));
  layout.remove(AllocationId("c"));
  layout.add(AllocationId("d"), 1, 16, "");
  layout.put("k", AllocationId("a"), 3, std::string("\0v", 2));
  layout.remove(AllocationId("d"));
  return layout;
}

std::vector<std::string> parts_of(const Layout& layout, const LayoutHash& hash, bool published) {
  RecordWriter writer(layout, hash, published);
  std::vector<std::string> parts;
  for (std::string part = writer.next(); !part.empty(); part = writer.next()) {
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string bytes;
  for (const std::string& part : parts) bytes += part;
  return bytes;
}

LayoutRecord read_back(const std::string& bytes) {
  const base::UniqueFd file(::memfd_create("record", MFD_CLOEXEC));
  os::write_all(file.get(), bytes, "write a record");
  return read_record(file.get());
}

TEST(LayoutRecord, KeepsAllThereIs) {
  const Layout layout = some_layout();
  for (const bool published : {false, true}) {
    LayoutRecord record = read_back(joined(parts_of(layout, layout_hash(layout), published)));
    EXPECT_EQ(record.layout.allocations(), layout.allocations());
    EXPECT_EQ(record.layout.metadata(), layout.metadata());
    EXPECT_EQ(record.hash, layout_hash(layout));
    EXPECT_EQ(record.published, published);
    EXPECT_EQ(record.layout.add(AllocationId("e"), 1, 16, "").layout_slot, 4u);
  }
}

TEST(LayoutRecord, NoTruncationAndNoOtherHashIsTaken) {
  const Layout layout = some_layout();
  const std::string bytes = joined(parts_of(layout, layout_hash(layout), true));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(read_back(bytes.substr(0, size)), base::Error) << size;
  }
  EXPECT_THROW(read_back(bytes + "x"), base::Error);
  EXPECT_THROW(read_back(joined(parts_of(layout, LayoutHash(std::string(64, '0')), true))),
               base::Error);
}

// A server writes the parts between answers to its other clients.
TEST(LayoutRecord, HasNoLongPart) {
  Layout layout;
  for (int i = 0; i < 5000; ++i) layout.add(AllocationId("a" + std::to_string(i)), 5, 16, "t");
  for (int i = 0; i < 5000; ++i) {
    layout.put("k" + std::to_string(i), AllocationId("a1"), 3, std::string(1000, 'v'));
  }
  const std::vector<std::string> parts = parts_of(layout, layout_hash(layout), true);
  EXPECT_GT(parts.size(), 30u);
  for (const std::string& part : parts) EXPECT_LT(part.size(), 256u << 10);
  for (std::size_t left_out = 0; left_out < parts.size(); ++left_out) {
    std::vector<std::string> some = parts;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(left_out));
    const bool has_all = left_out == 0;  // but whether it is published
    if (has_all) continue;
    EXPECT_THROW(read_back(joined(some)), base::Error) << left_out;
  }
  EXPECT_EQ(read_back(joined(parts)).layout.metadata(), layout.metadata());
}

TEST(LayoutHasher, GoesOnWhereItStoppedAndTakesALittleAtATime) {
  Layout layout;
  for (int i = 0; i < 100; ++i) layout.add(AllocationId("a" + std::to_string(i)), 5, 16, "t");
  for (int i = 0; i < 100; ++i)
    layout.put(std::to_string(i), AllocationId("a1"), 3, std::string(100, 'v'));
  LayoutHasher hasher(layout);
  int steps = 1;
  while (hasher.step(100)) ++steps;
  EXPECT_GT(steps, 100);
  EXPECT_EQ(hasher.finish(), layout_hash(layout));
}

}  // namespace
}  // namespace fo::gms
