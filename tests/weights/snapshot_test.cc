// Snapshots against a real gms-serve on the simulated driver: saved, loaded, and everything that
// can be wrong with one.
#include "weights/snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "base/base64.h"
#include "gms/layout.h"
#include "gms/protocol.h"
#include "os/file.h"
#include "os/process.h"
#include "served.h"
#include "weights/load.h"
#include "weights/save.h"
#include "weights/unpublish.h"

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
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string content_of(const std::string& path) { return os::read_file(path, base::kGiB); }

void flip(const std::string& path, ByteCount at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

class SnapshotDirectory : public Served {
 protected:
  LoadOptions loading(const std::string& folder, LockType role = LockType::kRw) const {
    LoadOptions made;
    made.snapshot = folder;
    made.role = role;
    made.timeout = std::chrono::seconds(20);
    return made;
  }
  std::optional<LoadReport> run(const LoadOptions& options) {
    return load(driver(), device(), socket_, options);
  }

  // Several allocations, none a multiple of the granularity long.
  LoadReport publish_model() {
    LoadOptions model;
    model.model = dir_.write("m.safetensors", make_safetensors(some_parts()));
    model.role = LockType::kRw;
    model.timeout = std::chrono::seconds(20);
    model.slab = 64 * kKiB;
    return run(model).value_or(LoadReport{});
  }

  SaveOptions saving(const std::string& folder) const {
    SaveOptions made;
    made.folder = folder;
    made.timeout = std::chrono::seconds(20);
    return made;
  }
  std::optional<SaveReport> run(const SaveOptions& options) {
    return save(driver(), device(), socket_, options);
  }

  // What is published, slot by slot and key by key, without the ids.
  struct Content {
    std::string hash;
    std::vector<std::tuple<ByteCount, ByteCount, std::string, std::uint64_t>> allocations;
    std::vector<std::string> bytes;
    std::map<std::string, std::tuple<std::uint64_t, ByteCount, std::string>> metadata;
    bool operator==(const Content&) const = default;
  };
  Content published() {
    Content content;
    gms::MemoryManager reader(driver(), device(), socket_);
    EXPECT_EQ(reader.connect(LockType::kRo, gms::soon()), Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    content.hash = reader.layout_hash();
    std::map<std::string, std::uint64_t> slot_of;
    for (const auto& [one, address] : reader.allocations()) {
      content.allocations.emplace_back(one.size, one.aligned_size, one.tag, one.layout_slot);
      content.bytes.emplace_back(reinterpret_cast<const char*>(address), one.aligned_size);
      slot_of[one.allocation_id] = one.layout_slot;
    }
    for (const auto& [key, entry] : reader.fetch_metadata()) {
      content.metadata[key] = {slot_of.at(entry.allocation_id), entry.offset_bytes, entry.value};
    }
    return content;
  }

  void expect_refused(const LoadOptions& options, ExitStatus status, const std::string& reason) {
    const Failure failure = failure_of([&] { run(options); });
    EXPECT_EQ(failure.status, status) << failure.message;
    EXPECT_THAT(failure.message, HasSubstr(reason));
  }

  // The names beside the snapshot that begin as its own does.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("snap")) found.push_back(name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string snap_ = dir_.path("snap");
};

// --- there and back

TEST_F(SnapshotDirectory, BringsBackTheSameLayoutAndBytes) {
  start();
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
  start();
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

// Past the page cache, where the file system of the test's folder has such a way.
TEST_F(SnapshotDirectory, IsTheSameFromTheDisk) {
  start();
  publish_model();
  const Content before = published();
  ASSERT_TRUE(run(saving(snap_)));
  for (const ByteCount ring : {ByteCount{0}, kMiB}) {
    forget(snap_ + "/shards/shard_0000.bin");
    const WeightFile file(snap_ + "/shards/shard_0000.bin");
    if (!file.is_cold(0, file.size())) GTEST_SKIP() << "this file system knows no direct reads";
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

// The slots that a writer freed are not saved: what counts is the order.
TEST_F(SnapshotDirectory, KeepsTagsAndOrder) {
  start();
  gms::MemoryManager writer(driver(), device(), socket_);
  ASSERT_EQ(writer.connect(LockType::kRw, gms::soon()), Grant::kRw);
  auto& rpc = writer.rpc();
  const std::string first = rpc.allocate(1, "weights").allocation_id;
  const std::string second = rpc.allocate(3'000'000, "kv \"cache\" \xc3\xa4").allocation_id;
  const std::string third = rpc.allocate(2, "").allocation_id;
  rpc.free_allocation(first);
  rpc.put_metadata("a key", third, 7, std::string("\0\xff", 2));
  rpc.put_metadata("", second, 0, "");
  writer.commit();
  const std::string hash = state().memory_layout_hash;
  ASSERT_TRUE(run(saving(snap_)));
  const auto loaded = run(loading(snap_));
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->memory_layout_hash, hash);
  EXPECT_EQ(state().memory_layout_hash, hash);
}

TEST_F(SnapshotDirectory, IsOnlyReadByAReaderThatVerifies) {
  start();
  const LoadReport report = publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const auto imported = run(loading("/nonexistent", LockType::kRo));
  ASSERT_TRUE(imported);
  EXPECT_EQ(imported->memory_layout_hash, report.memory_layout_hash);
  LoadOptions verifying = loading(snap_, LockType::kRo);
  verifying.verify = true;
  EXPECT_EQ(run(verifying)->granted_lock_type, Grant::kRo);
  corrupt();
  expect_refused(verifying, ExitStatus::kBadData, ": device memory differs from");
  LoadOptions other;
  other.model = dir_.write("n", make_safetensors({make_part("x", "U8", "[9]", 9, 1)}));
  other.role = LockType::kRw;
  ASSERT_TRUE(run(other));
  expect_refused(verifying, ExitStatus::kBadData, "has " + report.memory_layout_hash);
}

TEST_F(SnapshotDirectory, IsPublishedOnlyWhereNothingIs) {
  start();
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  EXPECT_EQ(run(loading(snap_, LockType::kRwOrRo))->granted_lock_type, Grant::kRo);
  ASSERT_TRUE(unpublish(socket_, {}));
  EXPECT_EQ(run(loading(snap_, LockType::kRwOrRo))->granted_lock_type, Grant::kRw);
}

// --- as Dynamo writes it

// Made by the letter of gms-protocol(7), in Python's spelling and with keys that it doesn't name.
class DynamoSnapshot : public SnapshotDirectory {
 protected:
  // Two allocations of 4 MiB and 2 MiB in two shards.
  void write() {
    gms::Layout layout;
    layout.add("b7c0", 3'000'000, 4 * kMiB, "weights");
    layout.add("01fe", 2 * kMiB, 2 * kMiB, "default");
    layout.put("layer.0", "01fe", 256, R"({"dtype": "torch.int8"})");
    layout.put("w\xc3\xa4ight", "b7c0", 0, "x");
    hash_ = gms::layout_hash(layout);
    fs::create_directories(snap_ + "/shards");
    dir_.write("snap/manifest.json", R"({
  "version": "1.0",
  "timestamp": 1753900000.25,
  "use_gds": false,
  "layout_hash": ")" + hash_ + R"(",
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
    "value": ")" + base::encode_base64(R"({"dtype": "torch.int8"})") +
                                             R"(",
    "dtype": "int8"
  }
})");
    dir_.write("snap/shards/shard_0000.bin", make_part("", "", "", 4 * kMiB, 1).bytes);
    dir_.write("snap/shards/shard_0001.bin", make_part("", "", "", 2 * kMiB, 2).bytes);
  }

  std::string hash_;
};

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

// Every one leaves what is published as it was.
TEST_F(DynamoSnapshot, IsRefusedBeforeAnythingIsDropped) {
  start();
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
              "open snapshot '" + snap_ + "': no manifest.json in it: it is not complete");
  write();
  fs::remove(snap_ + "/gms_metadata.json");
  expect_kept(ExitStatus::kNoInput, "gms_metadata.json': No such file");
  write();
  fs::remove(snap_ + "/shards/shard_0001.bin");
  expect_kept(ExitStatus::kNoInput, "shard_0001.bin': No such file");
  write();
  fs::resize_file(snap_ + "/shards/shard_0001.bin", 2 * kMiB - 1);
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097151 bytes, which are not the 2097152");
  fs::resize_file(snap_ + "/shards/shard_0001.bin", 2 * kMiB + 1);
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097153 bytes, which are not the 2097152");
  write();
  replace("manifest.json", R"("tensor_offset": 0)", R"("tensor_offset": 1)");
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': 2097152 bytes, which are not the 2097153");
  write();
  replace("manifest.json", "shards/shard_0001.bin", "../shard_0001.bin");
  expect_kept(ExitStatus::kBadData, "is not a plain path within the snapshot");
  write();
  fs::rename(snap_ + "/shards/shard_0001.bin", dir_.path("outside"));
  fs::create_symlink("../../outside", snap_ + "/shards/shard_0001.bin");
  expect_kept(ExitStatus::kBadData, "shard_0001.bin': a link out of the snapshot");
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
    expect_kept(ExitStatus::kBadData, std::string(name) + "': a link out of the snapshot");
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
  expect_kept(ExitStatus::kBadData, "its layout_hash is not that of its allocations and metadata");
  write();
  replace("gms_metadata.json", R"("offset_bytes": 256)", R"("offset_bytes": 255)");
  expect_kept(ExitStatus::kBadData, "its layout_hash is not that of its allocations and metadata");
  write();
  replace("manifest.json", "}", "");
  expect_kept(ExitStatus::kBadData, "manifest.json': not JSON at byte");
}

// What the server has no room for, which would drop what is published and then refuse.
TEST_F(DynamoSnapshot, WithMoreRecordsThanAServerTakesIsRefused) {
  start();
  const LoadReport before = publish_model();
  write();
  std::string text = "{";
  for (std::size_t i = 0; i < gms::kMaxListSize; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
            R"(":{"allocation_id":"b7c0","offset_bytes":0,"value":""})";
  }
  dir_.write("snap/gms_metadata.json", text + "}");
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "more than the 256 MiB that a layout's records may take");
  EXPECT_EQ(state().memory_layout_hash, before.memory_layout_hash);
}

TEST_F(DynamoSnapshot, ReplacedWhileItIsOpenedIsOneOrTheOther) {
  start();
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

TEST_F(DynamoSnapshot, OfAnotherGranularityIsRefused) {
  gpu_.set("GMS_SIM_GRANULARITY", "64KiB");
  start();
  write();
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "an allocation of 3000000 bytes takes 3014656 on device 0, and 4194304 where it "
                 "was saved: a device of another granularity");
  expect_nothing_published();
}

TEST_F(DynamoSnapshot, LargerThanTheDeviceIsRefused) {
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
  // With checksums too, which take the file in its own order.
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

// --- checksums

TEST_F(SnapshotDirectory, AnyFlippedBitIsFoundAndNothingPublished) {
  start();
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const std::string shard = snap_ + "/shards/shard_0000.bin";
  const ByteCount size = fs::file_size(shard);
  for (const ByteCount ring : {ByteCount{0}, kMiB}) {
    for (const ByteCount at : {ByteCount{0}, size / 2, size - 1}) {
      flip(shard, at);
      LoadOptions options = loading(snap_);
      options.ring = ring;
      options.copy_threads = 3;
      expect_refused(options, ExitStatus::kBadData,
                     "shard_0000.bin': its SHA-256 is not that in checksums.sha256");
      expect_nothing_published();
      options.checksums = Checksums::kIgnore;
      EXPECT_TRUE(run(options));
      flip(shard, at);
    }
  }
  EXPECT_TRUE(run(loading(snap_)));
}

TEST_F(SnapshotDirectory, AChangedManifestOrMetadataIsFoundBeforeAnythingIsDropped) {
  start();
  const LoadReport before = publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  for (const char* name : {"manifest.json", "gms_metadata.json"}) {
    const std::string good = content_of(snap_ + "/" + name);
    dir_.write(std::string("snap/") + name, good + " ");
    expect_refused(loading(snap_), ExitStatus::kBadData,
                   std::string(name) + "': its SHA-256 is not that in checksums.sha256");
    EXPECT_EQ(state().memory_layout_hash, before.memory_layout_hash);
    LoadOptions unchecked = loading(snap_);
    unchecked.checksums = Checksums::kIgnore;
    EXPECT_TRUE(run(unchecked));
    dir_.write(std::string("snap/") + name, good);
  }
  dir_.write("snap/checksums.sha256", "");
  expect_refused(loading(snap_), ExitStatus::kBadData,
                 "checksums.sha256': nothing for 'manifest.json'");
  fs::remove(snap_ + "/checksums.sha256");
  EXPECT_TRUE(run(loading(snap_)));
}

TEST_F(SnapshotDirectory, AShardThatIsCutOffOrWrittenToMeanwhilePublishesNothing) {
  start();
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const std::string shard = snap_ + "/shards/shard_0000.bin";
  // Else a write within the same tick of the clock would not show.
  fs::last_write_time(shard, fs::file_time_type::clock::now() - std::chrono::hours(1));
  LoadOptions options = loading(snap_);
  options.checksums = Checksums::kIgnore;
  options.on_progress = [&](ByteCount done, ByteCount total) {
    if (done == total) std::ofstream(shard, std::ios::in | std::ios::out).seekp(500) << "x";
  };
  expect_refused(options, ExitStatus::kBadData, "written to meanwhile");
  expect_nothing_published();
  options.copy_threads = 1;
  options.on_progress = [&](ByteCount done, ByteCount) {
    if (done == 0) fs::resize_file(shard, 2 * kMiB);
  };
  expect_refused(options, ExitStatus::kBadData, "it is cut off, nothing at byte 2097152");
  expect_nothing_published();
}

// Each call that the loader makes fails once, with threads that wait for each other's bytes.
TEST_F(SnapshotDirectory, AFailingDeviceEndsTheLoad) {
  start();
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

// --- saving, and what can go wrong with it

class Save : public SnapshotDirectory {
 protected:
  // gms-save as a process of its own, its device as it is told.
  os::Child spawn_save(const std::string& faults = "", std::vector<std::string> more = {}) const {
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/gms-save",
                                  snap_,
                                  "--socket",
                                  socket_,
                                  "--driver",
                                  "sim",
                                  "--ring",
                                  "128KiB",
                                  "--copy-threads",
                                  "2",
                                  "--timeout",
                                  "20s"};
    argv.insert(argv.end(), more.begin(), more.end());
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.environment = {{"GMS_SIM_FAULTS", faults}};
    return os::spawn(argv, options);
  }

  // Complete, and of what is published.
  void expect_good() {
    const Content before = published();
    ASSERT_TRUE(run(loading(snap_)));
    EXPECT_EQ(published(), before);
  }

  [[nodiscard]] bool partial_has(const std::string& name) const {
    for (const std::string& one : names()) {
      if (one.starts_with("snap.partial-") && fs::exists(dir_.path(one) + "/" + name)) return true;
    }
    return false;
  }
};

TEST_F(Save, NeverTouchesWhatIsThere) {
  start();
  publish_model();
  fs::create_directory(snap_);
  dir_.write("snap/notes", "mine");
  const auto expect_kept = [&](Replace replace, const std::string& reason) {
    SaveOptions options = saving(snap_);
    options.replace = replace;
    const Failure failure = failure_of([&] { run(options); });
    EXPECT_EQ(failure.status, ExitStatus::kCannotCreate);
    EXPECT_EQ(failure.message, "save to '" + snap_ + "': " + reason);
    EXPECT_THAT(names(), ElementsAre("snap"));
  };
  expect_kept(Replace::kNo, "it is there already");
  expect_kept(Replace::kYes, "'notes' in it is no part of a snapshot");
  EXPECT_EQ(content_of(snap_ + "/notes"), "mine");
  fs::remove_all(snap_);
  dir_.write("snap", "a file");
  expect_kept(Replace::kYes, "it is there and no folder");
  fs::remove(snap_);
  fs::create_symlink(dir_.path(), snap_);
  expect_kept(Replace::kYes, "it is there and no folder");
  fs::remove(snap_);
  EXPECT_EQ(status_of([&] { run(saving(dir_.path("absent/snap"))); }), ExitStatus::kCannotCreate);
}

TEST_F(Save, TakesThePlaceOfAnEmptyFolder) {
  start();
  publish_model();
  fs::create_directory(snap_);
  ASSERT_TRUE(run(saving(snap_ + "/")));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

TEST_F(Save, ReplacesASnapshotWhereToldTo) {
  start();
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  LoadOptions other;
  other.model = dir_.write("n", make_safetensors({make_part("x", "U8", "[9]", 9, 1)}));
  other.role = LockType::kRw;
  ASSERT_TRUE(run(other));
  SaveOptions options = saving(snap_);
  EXPECT_EQ(status_of([&] { run(options); }), ExitStatus::kCannotCreate);
  options.replace = Replace::kYes;
  ASSERT_TRUE(run(options));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
  // One that a killed saver of another make left half done is no better.
  fs::remove(snap_ + "/manifest.json");
  ASSERT_TRUE(run(options));
  expect_good();
}

TEST_F(Save, OfNothingPublishedGivesUpInTime) {
  start();
  SaveOptions options = saving(snap_);
  options.timeout = std::chrono::milliseconds(20);
  EXPECT_FALSE(run(options));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Save, KeepsWritersOutWhileItReads) {
  start();
  publish_model();
  const os::Child saver = spawn_save("cuMemcpyDtoH:5=hang");
  ASSERT_TRUE(until([&] { return partial_has("shards/shard_0000.bin"); }));
  EXPECT_FALSE(unpublish(socket_, std::chrono::milliseconds(20)));
  EXPECT_TRUE(state().committed);
  saver.signal(SIGKILL);
  EXPECT_EQ(saver.wait(gms::soon()), 128 + SIGKILL);
  EXPECT_TRUE(unpublish(socket_, std::chrono::seconds(20)));
}

// Killed at the k-th copy from the device, every 40th there is; with a snapshot there already,
// which stays as it was.
TEST_F(Save, KilledAtAnyCopyLeavesNoSnapshotAndHarmsNone) {
  start();
  publish_model();
  for (const bool replacing : {false, true}) {
    if (replacing) {
      ASSERT_TRUE(run(saving(snap_)));
    }
    const std::string before = replacing ? content_of(snap_ + "/manifest.json") : "";
    int k = 1;
    for (;; k += 40) {
      const os::Child saver = spawn_save(
          "cuMemcpyDtoH:" + std::to_string(k) + "=kill",
          replacing ? std::vector<std::string>{"--replace"} : std::vector<std::string>{});
      const auto status = saver.wait(gms::soon());
      if (status == 0) break;
      ASSERT_EQ(status, 128 + SIGKILL);
      EXPECT_EQ(fs::exists(snap_), replacing);
      EXPECT_TRUE(!replacing || content_of(snap_ + "/manifest.json") == before);
      // One that died is removed by the next.
      EXPECT_LE(names().size(), replacing ? 2u : 1u);
    }
    EXPECT_GT(k, 100);
    EXPECT_THAT(names(), ElementsAre("snap"));
    expect_good();
    fs::remove_all(snap_);
  }
}

// Killed as soon as this or that is there, which may be a bit later.
TEST_F(Save, KilledWhileItFinishesLeavesAWholeSnapshotOrNone) {
  start();
  publish_model();
  for (const char* name : {"", "shards", "shards/shard_0000.bin", "gms_metadata.json",
                           "checksums.sha256", "manifest.json"}) {
    for (const bool replacing : {false, true}) {
      if (replacing && !fs::exists(snap_)) {
        ASSERT_TRUE(run(saving(snap_)));
      }
      const os::Child saver = spawn_save(
          "", replacing ? std::vector<std::string>{"--replace"} : std::vector<std::string>{});
      std::optional<os::WaitStatus> ended;
      ASSERT_TRUE(until([&] {
        ended = saver.wait(base::Deadline::after(base::Duration{}));
        return ended || partial_has(name);
      }));
      saver.signal(SIGKILL);
      if (!ended) {
        ASSERT_TRUE(saver.wait(gms::soon()));
      }
      EXPECT_TRUE(!replacing || fs::exists(snap_ + "/manifest.json"));
      if (fs::exists(snap_)) expect_good();
      if (!replacing) fs::remove_all(snap_);
    }
    fs::remove_all(snap_);
  }
  ASSERT_TRUE(run(saving(snap_)));
  EXPECT_THAT(names(), ElementsAre("snap"));
}

TEST_F(Save, ADeviceThatFailsLeavesNothing) {
  start();
  publish_model();
  for (const char* fault : {"cuMemcpyDtoH:1=unknown", "cuMemcpyDtoH:90=unknown",
                            "cuMemMap:2=unknown", "cuMemHostAlloc:2=unknown",
                            "cuDevicePrimaryCtxRetain:1=unknown", "cuCtxSetCurrent:1=unknown"}) {
    EXPECT_EQ(spawn_save(fault).wait(gms::soon()), base::to_int(ExitStatus::kSoftware)) << fault;
    EXPECT_THAT(names(), IsEmpty()) << fault;
  }
}

TEST_F(Save, InterruptedLeavesNothing) {
  start();
  publish_model();
  gpu_.set("GMS_SIM_LATENCY", "cuMemcpyDtoH=20ms");
  const os::Child saver = spawn_save();
  ASSERT_TRUE(until([&] { return partial_has("shards/shard_0000.bin"); }));
  saver.signal(SIGTERM);
  EXPECT_EQ(saver.wait(gms::soon()), 128 + SIGTERM);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Save, InterruptedTwiceEndsEvenWhereTheDeviceHangs) {
  start();
  publish_model();
  const os::Child saver = spawn_save("cuMemcpyDtoH:5=hang");
  ASSERT_TRUE(until([&] { return partial_has("shards/shard_0000.bin"); }));
  ASSERT_TRUE(until([&] {
    saver.signal(SIGTERM);
    return saver.wait(base::Deadline::after(base::Duration{})) == 128 + SIGTERM;
  }));
}

TEST_F(Save, OfTwoAtOnceOneWins) {
  start();
  publish_model();
  const os::Child one = spawn_save();
  const os::Child other = spawn_save();
  const auto first = one.wait(gms::soon());
  const auto second = other.wait(gms::soon());
  ASSERT_TRUE(first && second);
  EXPECT_EQ(std::min(*first, *second), 0);
  EXPECT_EQ(std::max(*first, *second), base::to_int(ExitStatus::kCannotCreate));
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

TEST_F(Save, OfTwoThatReplaceBothAreDone) {
  start();
  publish_model();
  ASSERT_TRUE(run(saving(snap_)));
  const os::Child one = spawn_save("", {"--replace"});
  const os::Child other = spawn_save("", {"--replace"});
  EXPECT_EQ(one.wait(gms::soon()), 0);
  EXPECT_EQ(other.wait(gms::soon()), 0);
  EXPECT_THAT(names(), ElementsAre("snap"));
  expect_good();
}

// --- the folder that is written into

class Folder : public SnapshotDirectory {};

TEST_F(Folder, OfADeadSaverIsRemovedAndNobodyElses) {
  for (const char* name : {"snap.partial-0123abcd/shards", "snap.partial-backup/keep",
                           "snap.partial-0123abcde", "snap.partial-0123ABCD"}) {
    fs::create_directories(dir_.path(name));
  }
  for (const char* name :
       {"manifest.json", "gms_metadata.json.Ab12yZ", "shards/shard_0000.bin", ".lock"}) {
    dir_.write(std::string("snap.partial-0123abcd/") + name, "x");
  }
  dir_.write("snap.partial-backup/keep/f", "mine");
  { const SnapshotFolder folder(snap_, Replace::kNo); }
  EXPECT_THAT(names(), ElementsAre("snap.partial-0123ABCD", "snap.partial-0123abcde",
                                   "snap.partial-backup"));
  EXPECT_EQ(content_of(dir_.path("snap.partial-backup/keep/f")), "mine");
}

TEST_F(Folder, KeepsWhatIsNoPartOfASnapshot) {
  fs::create_directories(dir_.path("snap.partial-0123abcd"));
  dir_.write("snap.partial-0123abcd/f", "mine");
  { const SnapshotFolder folder(snap_, Replace::kNo); }
  EXPECT_EQ(content_of(dir_.path("snap.partial-0123abcd/f")), "mine");
}

// However the making of one and the cleaning up of another come to lie.
TEST_F(Folder, IsNeverTakenForADeadOne) {
  std::vector<std::future<void>> savers;
  for (int i = 0; i < 4; ++i) {
    savers.push_back(std::async(std::launch::async, [this] {
      for (int round = 0; round < 200; ++round) {
        const SnapshotFolder folder(snap_, Replace::kNo);
        fs::create_directory(folder.path() + "/shards");
        std::ofstream(folder.path() + "/shards/shard_0000.bin") << "x";
        EXPECT_EQ(content_of(folder.path() + "/shards/shard_0000.bin"), "x");
      }
    }));
  }
  for (auto& saver : savers) EXPECT_NO_THROW(saver.get());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Folder, HasNothingOfItsOwnInItsPlace) {
  SnapshotFolder folder(snap_, Replace::kNo);
  folder.publish();
  EXPECT_TRUE(fs::is_empty(snap_));
}

TEST_F(Folder, HasModeAndOwnerOfWhatItReplaces) {
  fs::create_directory(snap_);
  ASSERT_EQ(::chmod(snap_.c_str(), 02750), 0);
  const bool gives_away = ::chown(snap_.c_str(), 1234, 5678) == 0 && ::geteuid() == 0;
  for (const bool is_empty : {true, false}) {
    if (!is_empty) dir_.write("snap/manifest.json", "x");
    ASSERT_EQ(::chmod(snap_.c_str(), 02750), 0);
    SnapshotFolder folder(snap_, Replace::kYes);
    folder.publish();
    struct stat made {};
    ASSERT_EQ(::stat(snap_.c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 07777, 02750u);
    if (gives_away) {
      EXPECT_EQ(made.st_uid, 1234u);
      EXPECT_EQ(made.st_gid, 5678u);
    }
  }
  EXPECT_THAT(names(), ElementsAre("snap"));
}

// --- dropping

TEST_F(SnapshotDirectory, UnpublishWaitsForReaders) {
  start();
  const LoadReport report = publish_model();
  gms::RpcClient reader = gms::RpcClient::connect(socket_, gms::soon());
  ASSERT_TRUE(reader.shake_hands(LockType::kRo, gms::soon()).grant);
  EXPECT_FALSE(unpublish(socket_, std::chrono::milliseconds(20)));
  EXPECT_EQ(state().memory_layout_hash, report.memory_layout_hash);
}

TEST_F(SnapshotDirectory, UnpublishOfNothingIsDone) {
  start();
  const auto report = unpublish(socket_, std::chrono::seconds(20));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->memory_layout_hash, "");
  EXPECT_EQ(format_text(*report), "nothing was published");
}

TEST_F(SnapshotDirectory, UnpublishDropsASealedLayoutToo) {
  start();
  {
    gms::RpcClient writer = gms::RpcClient::connect(socket_, gms::soon());
    ASSERT_TRUE(writer.shake_hands(LockType::kRw, gms::soon()).grant);
    writer.allocate(5, "weights");
    writer.seal();
  }
  const auto report = unpublish(socket_, std::chrono::seconds(20));
  ASSERT_TRUE(report);
  EXPECT_EQ(report->allocations, 1);
  EXPECT_THAT(format_text(*report), StartsWith("unpublished 1 allocations, layout "));
  ASSERT_TRUE(until([&] { return !state().has_rw_session; }));
  EXPECT_FALSE(state().layout_committed);
}

TEST(UnpublishReport, OfALayoutWithoutAHashSaysThatItWasDropped) {
  const UnpublishReport report{true, 3, ""};
  EXPECT_EQ(format_text(report), "unpublished 3 allocations, layout unknown");
  EXPECT_EQ(format_json(report), R"({"allocations": 3, "memory_layout_hash": ""})");
}

TEST(SaveReport, IsOneLineForPeopleAndForPrograms) {
  SaveReport report;
  report.bytes = 3 * base::kGiB;
  report.seconds = 1.5;
  report.tensors = 7;
  report.allocations = 3;
  report.shards = 1;
  report.memory_layout_hash = "abc";
  EXPECT_EQ(format_text(report),
            "saved 7 tensors, 3 GiB in 3 allocations and 1 shards, in 1.500 s (2 GiB/s), layout "
            "abc");
  EXPECT_EQ(format_json(report),
            R"({"bytes": 3221225472, "seconds": 1.500000, "tensors": 7, "allocations": 3, )"
            R"("shards": 1, "memory_layout_hash": "abc"})");
}

}  // namespace
}  // namespace fo::weights
