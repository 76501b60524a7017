// Snapshots with a real gms-serve: loading, and everything that can be invalid.
#include "weights/snapshot/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>

#include "gms/protocol/layout.h"
#include "gms/protocol/protocol.h"
#include "snapshot_fixture.h"
#include "support/must_run.h"
#include "support/sanitizers.h"
#include "text/base64.h"

namespace fo::weights {
namespace {

namespace fs = std::filesystem;
using base::ByteCount;
using base::ExitStatus;
using base::kKiB;
using base::kMiB;
using gms::Grant;
using gms::LockType;
using testing::ElementsAre;

void flip(const std::string& path, ByteCount at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

// --- Round trips.

TEST_F(SnapshotDirectory, BringsBackTheSameLayoutAndBytes) {
  const LoadReport report = publish_model();
  ASSERT_GT(report.allocations, 2u);
  const Content before = published();
  const auto saved = run(saving(snap_));
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->memory_layout_hash, report.memory_layout_hash);
  EXPECT_EQ(saved->allocations, report.allocations);
  EXPECT_EQ(saved->tensors, some_parts().size());
  EXPECT_EQ(saved->shards, 1u);
  EXPECT_EQ(published(), before);

  const auto dropped = unpublish(socket_, std::chrono::seconds(20));
  ASSERT_TRUE(dropped);
  EXPECT_EQ(dropped->memory_layout_hash, report.memory_layout_hash);
  EXPECT_EQ(dropped->allocations, static_cast<std::int64_t>(report.allocations));
  expect_nothing_published();

  const auto loaded = run(loading(snap_));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->granted_lock_type, Grant::kRw);
  EXPECT_EQ(loaded->memory_layout_hash, report.memory_layout_hash);
  EXPECT_EQ(loaded->bytes, saved->bytes);
  EXPECT_EQ(loaded->tensors, saved->tensors);
  EXPECT_EQ(published(), before);
}

TEST_F(SnapshotDirectory, IsTheSameThroughStagingBuffers) {
  publish_model();
  const Content before = published();
  SaveOptions staged = saving(snap_);
  staged.ring = 256 * kKiB;
  staged.copy_threads = 3;
  ASSERT_TRUE(run(staged));
  ASSERT_TRUE(run(saving(dir_.path("straight"))));
  EXPECT_EQ(content_of(snap_ + "/shards/shard_0000.bin"),
            content_of(dir_.path("straight/shards/shard_0000.bin")));
  LoadOptions back = loading(snap_);
  back.ring = 256 * kKiB;
  back.copy_threads = 3;
  back.verify = true;
  ASSERT_TRUE(run(back));
  EXPECT_EQ(published(), before);
}

// Past the page cache, if the file system of the test's folder supports that.
TEST_F(SnapshotDirectory, IsTheSameFromTheDisk) {
  publish_model();
  const Content before = published();
  ASSERT_TRUE(run(saving(snap_)));
  for (const Ring ring : kRings) {
    forget(snap_ + "/shards/shard_0000.bin");
    const WeightFile file(snap_ + "/shards/shard_0000.bin");
    if (!file.is_cold(0, file.size()))
      FO_SKIP("direct-reads", "this file system knows no direct reads");
    LoadOptions cold = loading(snap_);
    cold.ring = ring;
    ASSERT_TRUE(run(cold));
    EXPECT_EQ(published(), before);
  }
}

TEST_F(SnapshotDirectory, OfNothingIsNothing) {
  start();
  gms::MemoryManager writer(driver(), device(), socket_);
  ASSERT_EQ(writer.connect(LockType::kRw, gms::soon()), Grant::kRw);
  writer.commit();
  const Content before = published();
  ASSERT_TRUE(run(saving(snap_)));
  ASSERT_TRUE(unpublish(socket_, std::chrono::seconds(20)));
  ASSERT_TRUE(run(loading(snap_)));
  EXPECT_EQ(published(), before);
}

// Freed slots are not saved: only the order counts.
TEST_F(SnapshotDirectory, KeepsTagsAndOrder) {
  start();
  gms::MemoryManager writer(driver(), device(), socket_);
  ASSERT_EQ(writer.connect(LockType::kRw, gms::soon()), Grant::kRw);
  auto& rpc = writer.rpc();
  const gms::AllocationId first = rpc.allocate(1, "weights").allocation_id;
  const gms::AllocationId second = rpc.allocate(3'000'000, "kv \"cache\" \xc3\xa4").allocation_id;
  const gms::AllocationId third = rpc.allocate(2, "").allocation_id;
  rpc.free_allocation(first);
  rpc.put_metadata("a key", third, 7, std::string("\0\xff", 2));
  rpc.put_metadata("", second, 0, "");
  writer.commit();
  const gms::LayoutHash hash = state().memory_layout_hash;
  ASSERT_TRUE(run(saving(snap_)));
  const auto loaded = run(loading(snap_));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->memory_layout_hash, hash);
  EXPECT_EQ(state().memory_layout_hash, hash);
}

TEST_F(SnapshotDirectory, IsComparedByAReaderByteForByteOnlyToVerify) {
  const LoadReport report = publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const LoadOptions plain = loading(snap_, LockType::kRo);
  const auto imported = run(plain);
  ASSERT_TRUE(imported);
  EXPECT_EQ(imported->memory_layout_hash, report.memory_layout_hash);
  LoadOptions verifying = loading(snap_, LockType::kRo);
  verifying.verify = true;
  EXPECT_EQ(run(verifying)->granted_lock_type, Grant::kRo);
  corrupt();
  expect_refused(verifying, ExitStatus::kBadData, ": device memory differs from");
  EXPECT_TRUE(run(plain));
  // The same tensors at other positions.
  LoadOptions other;
  other.model = dir_.path("m.safetensors");
  other.role = LockType::kRw;
  ASSERT_TRUE(run(other));
  EXPECT_TRUE(run(plain));
  expect_refused(verifying, ExitStatus::kBadData, "has " + report.memory_layout_hash.value());
  other.model = dir_.write("n", make_safetensors({make_part("x", "U8", "[9]", 9, 1)}));
  ASSERT_TRUE(run(other));
  expect_refused(plain, ExitStatus::kBadData, "tensor 'lm_head': missing");
}

TEST_F(SnapshotDirectory, IsPublishedOnlyWhereNothingIs) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  EXPECT_EQ(run(loading(snap_, LockType::kRwOrRo))->granted_lock_type, Grant::kRo);
  ASSERT_TRUE(unpublish(socket_, {}));
  EXPECT_EQ(run(loading(snap_, LockType::kRwOrRo))->granted_lock_type, Grant::kRw);
}

// --- as Dynamo writes it

// Written according to gms-protocol(7), in Python's spelling and with additional keys.
class DynamoSnapshot : public SnapshotDirectory {
 protected:
  // Two allocations of 4 MiB and 2 MiB in two shards.
  void write() {
    gms::Layout layout;
    layout.add(gms::AllocationId("b7c0"), 3'000'000, 4 * kMiB, "weights");
    layout.add(gms::AllocationId("01fe"), 2 * kMiB, 2 * kMiB, "default");
    layout.put("layer.0", gms::AllocationId("01fe"), 256, R"({"dtype": "torch.int8"})");
    layout.put("w\xc3\xa4ight", gms::AllocationId("b7c0"), 0, "x");
    hash_ = gms::layout_hash(layout);
    fs::create_directories(snap_ + "/shards");
    dir_.write("snap/manifest.json", R"({
  "version": "1.0",
  "timestamp": 1753900000.25,
  "use_gds": false,
  "layout_hash": ")" + hash_.value() + R"(",
  "device": 3,
  "gds_available": null,
  "allocations": [
    {
      "allocation_id": "b7c0",
      "size": 3000000,
      "aligned_size": 4194304,
      "tag": "weights",
      "tensor_file": "shards/shard_0000.bin"
    },
    {
      "allocation_id": "01fe",
      "size": 2097152,
      "aligned_size": 2097152,
      "tag": "default",
      "tensor_file": "shards/shard_0001.bin",
      "tensor_offset": 0,
      "layout_slot": 7
    }
  ]
})");
    dir_.write("snap/gms_metadata.json", R"({
  "w\u00e4ight": {
    "allocation_id": "b7c0",
    "offset_bytes": 0,
    "value": "eA=="
  },
  "layer.0": {
    "allocation_id": "01fe",
    "offset_bytes": 256,
    "value": ")" + text::encode_base64(R"({"dtype": "torch.int8"})") +
                                             R"(",
    "dtype": "int8"
  }
})");
    dir_.write("snap/shards/shard_0000.bin", make_part("", "", "", 4 * kMiB, 1).bytes);
    dir_.write("snap/shards/shard_0001.bin", make_part("", "", "", 2 * kMiB, 2).bytes);
  }

  gms::LayoutHash hash_;
};

class SimulatedDynamoSnapshot : public DynamoSnapshot {};

TEST_F(DynamoSnapshot, IsLoadedByteForByte) {
  start();
  write();
  const auto report = run(loading(snap_));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->memory_layout_hash, hash_);
  const Content content = published();
  EXPECT_THAT(content.bytes, ElementsAre(content_of(snap_ + "/shards/shard_0000.bin"),
                                         content_of(snap_ + "/shards/shard_0001.bin")));
  EXPECT_EQ(content.metadata.at("layer.0"),
            std::make_tuple(1u, 256u, std::string(R"({"dtype": "torch.int8"})")));
}

TEST_F(DynamoSnapshot, SavedAgainSaysTheSame) {
  start();
  write();
  ASSERT_TRUE(run(loading(snap_)));
  const Content content = published();
  ASSERT_TRUE(run(saving(dir_.path("again"))));
  EXPECT_EQ(content_of(dir_.path("again/shards/shard_0000.bin")),
            content.bytes[0] + content.bytes[1]);
  ASSERT_TRUE(run(loading(dir_.path("again"))));
  EXPECT_EQ(published(), content);
}

// Each of them leaves the published layout unchanged.
TEST_F(DynamoSnapshot, IsRefusedBeforeAnythingIsDropped) {
  const LoadReport before = publish_model();
  const auto expect_kept = [&](ExitStatus status, const std::string& reason) {
    expect_refused(loading(snap_), status, reason);
    EXPECT_EQ(state().memory_layout_hash, before.memory_layout_hash) << reason;
  };
  const auto replace = [&](const std::string& file, const std::string& from,
                           const std::string& to) {
    std::string text = content_of(dir_.path("snap/" + file));
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    dir_.write("snap/" + file, text);
  };
  expect_kept(ExitStatus::kNoInput, "open '" + snap_ + "': No such file");
  fs::create_directory(snap_);
  expect_kept(ExitStatus::kNoInput,
              "open snapshot '" + snap_ + "': no manifest.json, so it is not complete");
  write();
  fs::remove(snap_ + "/gms_metadata.json");
  expect_kept(ExitStatus::kNoInput, "gms_metadata.json': No such file");
  write();
  fs::remove(snap_ + "/shards/shard_0001.bin");
  expect_kept(ExitStatus::kNoInput, "shard_0001.bin': No such file");
  write();
  fs::resize_file(snap_ + "/shards/shard_0001.bin", 2 * kMiB - 1);
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097151 bytes, expected the 2097152");
  fs::resize_file(snap_ + "/shards/shard_0001.bin", 2 * kMiB + 1);
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097153 bytes, expected the 2097152");
  write();
  replace("manifest.json", R"("tensor_offset": 0)", R"("tensor_offset": 1)");
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097152 bytes, expected the 2097153");
  write();
  replace("manifest.json", "shards/shard_0001.bin", "../shard_0001.bin");
  expect_kept(ExitStatus::kBadData, "is not a path within the snapshot");
  write();
  fs::rename(snap_ + "/shards/shard_0001.bin", dir_.path("outside"));
  fs::create_symlink("../../outside", snap_ + "/shards/shard_0001.bin");
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': a link that leaves the snapshot");
  fs::remove(snap_ + "/shards/shard_0001.bin");
  ASSERT_EQ(::mkfifo((snap_ + "/shards/shard_0001.bin").c_str(), 0600), 0);
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': not a regular file");
  fs::remove(snap_ + "/shards/shard_0001.bin");
  for (const char* name : {"manifest.json", "gms_metadata.json", "checksums.sha256"}) {
    write();
    const std::string path = snap_ + "/" + name;
    if (fs::exists(path)) {
      fs::rename(path, dir_.path("outside"));
    } else {
      dir_.write("outside", "");
    }
    fs::create_symlink("../outside", path);
    expect_kept(ExitStatus::kBadData, std::string(name) + "': a link that leaves the snapshot");
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_kept(ExitStatus::kBadData, std::string(name) + "': not a regular file");
    fs::remove(path);
  }
  write();
  replace("gms_metadata.json", "layer.0", std::string(5000, 'k'));
  expect_kept(ExitStatus::kBadData, "': too long");
  write();
  replace("manifest.json", R"("tag": "default")", R"("tag": "other")");
  expect_kept(ExitStatus::kBadData,
              "its layout_hash differs from that of its allocations and metadata");
  write();
  replace("gms_metadata.json", R"("offset_bytes": 256)", R"("offset_bytes": 255)");
  expect_kept(ExitStatus::kBadData,
              "its layout_hash differs from that of its allocations and metadata");
  write();
  replace("manifest.json", "}", "");
  expect_kept(ExitStatus::kBadData, "manifest.json': not JSON at byte");
}

// More than the server can hold: it would drop the published layout and then refuse.
TEST_F(DynamoSnapshot, WithMoreRecordsThanAServerTakesIsRefused) {
  if (test::kHasSanitizers) FO_SKIP("release", "a million keys take minutes with a sanitizer");
  const LoadReport before = publish_model();
  write();
  std::string text = "{";
  for (std::size_t i = 0; i < gms::kMaxListSize; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
            R"(":{"allocation_id":"b7c0","offset_bytes":0,"value":""})";
  }
  dir_.write("snap/gms_metadata.json", text + "}");
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "larger than the 256 MiB that a layout's records can have");
  EXPECT_EQ(state().memory_layout_hash, before.memory_layout_hash);
}

TEST_F(DynamoSnapshot, ReplacedWhileItIsOpenedIsOneOrTheOther) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const std::string other = dir_.path("other");
  LoadOptions model;
  model.model = dir_.write("n", make_safetensors({make_part("x", "U8", "[9]", 9, 1)}));
  model.role = LockType::kRw;
  ASSERT_TRUE(run(model));
  ASSERT_TRUE(run(saving(other)));
  std::atomic<bool> done = false;
  auto replacer = std::async(std::launch::async, [&] {
    while (!done) ::renameat2(AT_FDCWD, other.c_str(), AT_FDCWD, snap_.c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 200; ++i) {
    EXPECT_NO_THROW(static_cast<void>(open_snapshot(snap_, Checksums::kCheck)));
  }
  done = true;
}

TEST_F(DynamoSnapshot, LinksWithinItAreFollowed) {
  start();
  write();
  fs::rename(snap_ + "/shards/shard_0001.bin", snap_ + "/shards/other");
  fs::create_symlink("other", snap_ + "/shards/shard_0001.bin");
  EXPECT_TRUE(run(loading(snap_)));
}

TEST_F(SimulatedDynamoSnapshot, OfAnotherGranularityIsRefused) {
  gpu_.set("GMS_SIM_GRANULARITY", "64KiB");
  start();
  write();
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "an allocation of 3000000 bytes takes 3014656 on device 0, and 4194304 on the "
                 "one where it was saved: the devices' granularities differ");
  expect_nothing_published();
}

TEST_F(SimulatedDynamoSnapshot, LargerThanTheDeviceIsRefused) {
  gpu_.set("GMS_SIM_VRAM", "4MiB");
  start();
  write();
  expect_refused(loading(snap_), ExitStatus::kTryAgain, "6 MiB do not fit device 0");
}

TEST_F(DynamoSnapshot, MayHaveItsAllocationsInAnyOrderOfItsFile) {
  start();
  write();
  const std::string bytes = content_of(snap_ + "/shards/shard_0000.bin");
  dir_.write("snap/shards/shard_0000.bin", content_of(snap_ + "/shards/shard_0001.bin") + bytes);
  fs::remove(snap_ + "/shards/shard_0001.bin");
  std::string text = content_of(snap_ + "/manifest.json");
  text.replace(text.find("0001.bin"), 4, "0000");
  text.replace(text.find("0000.bin\""), 9, "0000.bin\", \"tensor_offset\": 2097152");
  dir_.write("snap/manifest.json", text);
  // Also with checksums, which need the order of the file.
  for (const bool checked : {false, true}) {
    if (checked) {
      const std::string sums = "cd '" + snap_ + "' && sha256sum manifest.json gms_metadata.json " +
                               "shards/* >checksums.sha256";
      ASSERT_EQ(std::system(sums.c_str()), 0);
    }
    LoadOptions options = loading(snap_);
    options.copy_threads = 4;
    ASSERT_TRUE(run(options));
    EXPECT_EQ(published().bytes[0], bytes);
  }
}

// --- Checksums.

TEST_F(SnapshotDirectory, AnyFlippedBitIsFoundBeforeAnythingIsDropped) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const std::string shard = snap_ + "/shards/shard_0000.bin";
  const ByteCount size = fs::file_size(shard);
  for (const Ring ring : kRings) {
    for (const ByteCount at : {ByteCount{0}, size / 2, size - 1}) {
      flip(shard, at);
      LoadOptions options = loading(snap_);
      options.ring = ring;
      options.copy_threads = 3;
      const std::string reason =
          "shard_0000.bin': its SHA-256 differs from that in checksums.sha256";
      const gms::LayoutHash before = state().memory_layout_hash;
      expect_refused(options, ExitStatus::kBadData, reason);
      EXPECT_EQ(state().memory_layout_hash, before);
      options.replace_first = true;
      expect_refused(options, ExitStatus::kBadData, reason);
      expect_nothing_published();
      options.replace_first = false;
      expect_refused(options, ExitStatus::kBadData, reason);
      expect_nothing_published();
      options.checksums = Checksums::kIgnore;
      EXPECT_TRUE(run(options));
      flip(shard, at);
    }
  }
  EXPECT_TRUE(run(loading(snap_)));
}

TEST_F(SnapshotDirectory, AChangedManifestOrMetadataIsFoundBeforeAnythingIsDropped) {
  const LoadReport before = publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  for (const char* name : {"manifest.json", "gms_metadata.json"}) {
    const std::string good = content_of(snap_ + "/" + name);
    dir_.write(std::string("snap/") + name, good + " ");
    expect_refused(loading(snap_), ExitStatus::kBadData,
                   std::string(name) + "': its SHA-256 differs from that in checksums.sha256");
    EXPECT_EQ(state().memory_layout_hash, before.memory_layout_hash);
    LoadOptions unchecked = loading(snap_);
    unchecked.checksums = Checksums::kIgnore;
    EXPECT_TRUE(run(unchecked));
    dir_.write(std::string("snap/") + name, good);
  }
  dir_.write("snap/checksums.sha256", "");
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "checksums.sha256': no entry for 'manifest.json'");
  fs::remove(snap_ + "/checksums.sha256");
  EXPECT_TRUE(run(loading(snap_)));
}

TEST_F(SnapshotDirectory, AShardThatIsCutOffOrWrittenToMeanwhilePublishesNothing) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const std::string shard = snap_ + "/shards/shard_0000.bin";
  // Otherwise a write within the same clock tick would be invisible.
  fs::last_write_time(shard, fs::file_time_type::clock::now() - std::chrono::hours(1));
  LoadOptions options = loading(snap_);
  options.checksums = Checksums::kIgnore;
  options.on_progress = [&](ByteCount done, ByteCount total) {
    if (done == total) std::ofstream(shard, std::ios::in | std::ios::out).seekp(500) << "x";
  };
  expect_refused(options, ExitStatus::kBadData, "it was modified meanwhile");
  expect_nothing_published();
  options.copy_threads = 1;
  options.on_progress = [&](ByteCount done, ByteCount) {
    if (done == 0) fs::resize_file(shard, 2 * kMiB);
  };
  expect_refused(options, ExitStatus::kBadData, "it is truncated at byte 2097152");
  expect_nothing_published();
}

// Every driver call of the loader fails once, with threads that wait for each other's bytes.
TEST_F(SimulatedSnapshotDirectory, AFailingDeviceEndsTheLoad) {
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  driver_.reset();
  for (const char* fault : {"cuMemMap:2=unknown", "cuMemcpyHtoDAsync:1=unknown",
                            "cuMemcpyHtoDAsync:7=unknown", "cuStreamSynchronize:9=unknown",
                            "cuMemHostAlloc:3=unknown", "cuCtxSynchronize:1=unknown"}) {
    gpu_.fresh_library();
    gpu_.set("GMS_SIM_FAULTS", fault);
    LoadOptions options = loading(snap_);
    options.ring = kMiB;
    options.copy_threads = 4;
    EXPECT_EQ(status_of([&] { run(options); }), ExitStatus::kSoftware) << fault;
    driver_.reset();
    expect_nothing_published();
  }
}

}  // namespace
}  // namespace fo::weights
