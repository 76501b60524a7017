// Our extensions to Dynamo's protocol, between clients and servers with and without them.
#include <gmock/gmock.h>

#include "gms/raw_client.h"
#include "gms/server/plain_relay.h"
#include "gms/server_with_device.h"

namespace fo::gms {
namespace {

using Offer = PlainRelay::Offer;
using testing::ElementsAre;

// With granules of one page, because only numbers of allocations matter here.
class Extensions : public ServerWithDevice {
 protected:
  Extensions() { set("GMS_SIM_GRANULARITY", "4096"); }
  void SetUp() override {
    ServerWithDevice::SetUp();
    if (IsSkipped()) return;
    size_ = device_.granularity;
    start();
  }

  // Publishes `count` allocations with a tensor each through this socket.
  void publish(const std::string& socket, std::size_t count) const {
    MemoryManager writer = manager(socket);
    ASSERT_EQ(writer.connect(LockType::kRw, soon()), Grant::kRw);
    const auto made = writer.allocate_many(std::vector<base::ByteCount>(count, size_), "t");
    ASSERT_EQ(made.size(), count);
    Metadata metadata;
    for (std::size_t i = 0; i < count; ++i) {
      fill(made[i], letter(i));
      metadata["tensor " + std::to_string(i)] = {made[i].allocation.allocation_id, i % size_,
                                                 "value " + std::to_string(i)};
    }
    writer.rpc().put_metadata_many(metadata);
    writer.commit();
  }

  // Imports through this socket and compares; then sleeps and wakes.
  void import(const std::string& socket, std::size_t count) const {
    MemoryManager reader = manager(socket);
    ASSERT_EQ(reader.connect(LockType::kRo, soon()), Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    const Metadata metadata = reader.fetch_metadata();
    EXPECT_EQ(metadata.size(), count);
    const auto check = [&] {
      ASSERT_EQ(reader.allocations().size(), count);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(byte_at(reader.allocations()[i], size_ - 1), letter(i));
      }
    };
    check();
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = metadata.find("tensor " + std::to_string(i));
      ASSERT_NE(found, metadata.end());
      EXPECT_EQ(found->second.allocation_id, reader.allocations()[i].allocation.allocation_id);
      EXPECT_EQ(found->second.offset_bytes, i % size_);
      EXPECT_EQ(found->second.value, "value " + std::to_string(i));
    }
    reader.unmap_all();
    ASSERT_EQ(reader.remap_all(soon()).result, RemapResult::kOk);
    check();
  }

  // Of the i-th allocation.
  static char letter(std::size_t i) { return static_cast<char>(i % 251); }

  base::ByteCount size_ = 0;
};

class SimulatedExtensions : public Extensions {};

TEST_F(Extensions, ThousandsAreImportedAndWokenInAHandfulOfRequests) {
  const PlainRelay relay(path("relay.sock"), socket_, Offer::kEverything);
  publish(path("relay.sock"), 1000);
  EXPECT_LE(relay.requests(), 20);
  const int before = relay.requests();
  import(path("relay.sock"), 1000);
  EXPECT_LE(relay.requests() - before, 2 * 20);
}

TEST_F(Extensions, AServerThatHasNoneGetsOneRequestPerObject) {
  const PlainRelay relay(path("relay.sock"), socket_);
  publish(path("relay.sock"), 30);
  EXPECT_GT(relay.requests(), 3 * 30);
  import(path("relay.sock"), 30);
  // Clients of both kinds see the same layout.
  import(socket_, 30);
}

TEST_F(SimulatedExtensions, LayoutIsExportedInPagesOfAsManyAsOneMessageCarries) {
  const std::size_t count = 2 * os::kMaxFdsPerMessage + 1;
  publish(socket_, count);
  RpcClient reader = enter(LockType::kRo);
  const std::vector<Allocation> all = reader.list_allocations();
  EXPECT_EQ(reader.export_from(all, 0).size(), os::kMaxFdsPerMessage);
  EXPECT_EQ(reader.export_from(all, 7).size(), os::kMaxFdsPerMessage);
  EXPECT_EQ(reader.export_from(all, count - 1).size(), 1u);
  // In order: the bytes identify the rank.
  const auto fds = reader.export_from(all, 5);
  char byte = 0;
  ASSERT_EQ(::pread(fds[2].get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 7);
}

TEST_F(Extensions, ExportsOneTagAndFromASlotThatIsNoMore) {
  const RawClient writer(socket_);
  EXPECT_THAT(writer.ask<HandshakeResponse>(HandshakeRequest{"rw", 1000}).extensions,
              ElementsAre("export_layout", "metadata_dump", "allocate_many", "metadata_put_many"));
  const auto odd = static_cast<std::int64_t>(size_ + 1);
  const auto made = writer.ask<AllocateManyResponse>(
      AllocateManyRequest{{{1, "a"}, {2, "b"}, {odd, "a"}, {4, "b"}}});
  ASSERT_EQ(made.allocations.size(), 4u);
  EXPECT_EQ(made.allocations[2].size, odd);
  EXPECT_EQ(made.allocations[2].aligned_size, static_cast<std::int64_t>(2 * size_));
  EXPECT_EQ(made.allocations[3].layout_slot, 3);
  writer.ask<FreeAllocationResponse>(FreeAllocationRequest{made.allocations[0].allocation_id});

  std::vector<base::UniqueFd> fds;
  ExportLayoutRequest request;
  auto page = writer.ask<ExportLayoutResponse>(request, &fds);
  EXPECT_EQ(page.allocations.size(), 3u);
  EXPECT_EQ(fds.size(), 3u);
  EXPECT_EQ(page.next_slot, std::nullopt);
  EXPECT_EQ(page.memory_layout_hash, LayoutHash());
  request.tag = "b";
  page = writer.ask<ExportLayoutResponse>(request, &fds);
  EXPECT_EQ(page.allocations.size(), 2u);
  EXPECT_EQ(page.allocations[1].layout_slot, 3);
  for (const std::int64_t slot : {std::int64_t{4}, std::numeric_limits<std::int64_t>::max()}) {
    request.first_slot = slot;
    page = writer.ask<ExportLayoutResponse>(request, &fds);
    EXPECT_EQ(page.allocations.size(), 0u);
    EXPECT_EQ(fds.size(), 0u);
  }
  request.first_slot = -5;
  EXPECT_EQ(writer.ask<ExportLayoutResponse>(request, &fds).allocations.size(), 2u);
}

TEST_F(Extensions, BatchesAreAllOrNothing) {
  RpcClient writer = enter(LockType::kRw);
  // The last one is invalid.
  EXPECT_THROW(writer.allocate_many({size_, size_, 0}, "t"), RequestRefused);
  EXPECT_THROW(writer.allocate_many({size_, parts(300)}, "t"), RequestRefused);
  // Each is valid alone, but not all together.
  EXPECT_THROW(writer.allocate_many({parts(200), parts(200)}, "t"), RequestRefused);
  EXPECT_EQ(writer.list_allocations().size(), 0u);
  const auto made = writer.allocate_many({size_, size_}, "t");
  EXPECT_EQ(made[0].layout_slot, 0);
  const MetadataEntry good{made[0].allocation_id, 0, "v"};
  EXPECT_THROW(writer.put_metadata_many({{"a", good}, {"b", {AllocationId("no such id"), 0, "v"}}}),
               RequestRefused);
  EXPECT_THROW(writer.put_metadata_many({{"a", good}, {"b", {good.allocation_id, size_, "v"}}}),
               RequestRefused);
  EXPECT_EQ(writer.list_metadata().size(), 0u);
  writer.put_metadata_many({{"a", good}, {"b", good}});
  EXPECT_THAT(writer.list_metadata(), ElementsAre("a", "b"));
}

TEST_F(Extensions, BatchThatFindsNoRoomGivesBackWhatItHad) {
  // Two of the three fit.
  server_.reset();
  start({"--alloc-retry-timeout", "50ms", "--alloc-retry-interval", "10ms"});
  RpcClient writer = enter(LockType::kRw);
  const auto other =
      cuda::PhysicalMemory::create(driver_, device_.ordinal, base::round_up(parts(100), size_));
  const std::vector<base::ByteCount> sizes(3, parts(60));
  EXPECT_THROW(writer.allocate_many(sizes, "t"), RequestRefused);
  EXPECT_EQ(writer.list_allocations().size(), 0u);
  EXPECT_EQ(writer.allocate_many({parts(60), parts(60)}, "t").size(), 2u);
}

TEST_F(Extensions, ReadersGetNoBatches) {
  publish(socket_, 1);
  RpcClient reader = enter(LockType::kRo);
  EXPECT_THROW(reader.allocate_many({size_}, "t"), RequestRefused);
  EXPECT_THROW(reader.put_metadata_many({{"k", {AllocationId("x"), 0, ""}}}), RequestRefused);
  EXPECT_EQ(reader.fetch_metadata().size(), 1u);
}

TEST_F(Extensions, MetadataOfManyPagesComesWhole) {
  RpcClient writer = enter(LockType::kRw);
  const AllocationId id = writer.allocate(size_, "t").allocation_id;
  Metadata metadata;
  // One that fills a page, an empty key, and many small ones.
  metadata["big"] = {id, 0, std::string(kMaxMetadataValue, 'v')};
  metadata["bigger"] = {id, 0, std::string(kMaxMetadataValue, 'w')};
  metadata[""] = {id, 1, "nothing"};
  for (int i = 0; i < 3000; ++i)
    metadata["key " + std::to_string(i)] = {id, 2, std::string(999, 'x')};
  writer.put_metadata_many(metadata);
  EXPECT_EQ(writer.fetch_metadata(), metadata);
  writer.commit();
  const RawClient reader(socket_);
  reader.ask<HandshakeResponse>(HandshakeRequest{"ro", 1000});
  MetadataDumpRequest request;
  request.prefix = "key 29";
  const auto page = reader.ask<MetadataDumpResponse>(request);
  EXPECT_EQ(page.entries.size(), 111u);
  EXPECT_FALSE(page.more);
  request.after = "key 2998";
  EXPECT_EQ(reader.ask<MetadataDumpResponse>(request).entries.size(), 1u);
  request.after = "key 3";
  EXPECT_EQ(reader.ask<MetadataDumpResponse>(request).entries.size(), 0u);
  request.after = "a";
  EXPECT_EQ(reader.ask<MetadataDumpResponse>(request).entries.size(), 111u);
}

}  // namespace
}  // namespace fo::gms
