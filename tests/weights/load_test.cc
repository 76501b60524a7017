// The work of gms-load with a real gms-serve.
#include "weights/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "gms/client/memory_manager.h"
#include "gms/protocol/tensor_metadata.h"
#include "served.h"
#include "support.h"
#include "support/environment.h"
#include "weights/file/dtype.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::ExitStatus;
using base::kMiB;
using gms::Grant;
using gms::LockType;
using testing::HasSubstr;
using testing::StartsWith;

class Load : public Served {
 protected:
  LoadOptions options(const std::string& model, LockType role = LockType::kRwOrRo) const {
    LoadOptions made;
    made.model = model;
    made.role = role;
    made.timeout = std::chrono::seconds(20);
    return made;
  }
  std::optional<LoadReport> run(const LoadOptions& options) {
    return load(open_source(options), driver(), device(), socket_, options);
  }
  LoadReport publish(const LoadOptions& options) {
    const auto report = run(options);
    EXPECT_TRUE(report);
    return report.value_or(LoadReport{});
  }
  // Exact bytes, and metadata in the spelling of the protocol.
  void expect_published(const std::vector<Part>& parts) {
    const auto context = this->context();
    gms::MemoryManager reader(driver(), device(), socket_);
    ASSERT_EQ(reader.connect(LockType::kRo, gms::soon()), Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    const gms::Metadata metadata = reader.fetch_metadata();
    EXPECT_EQ(metadata.size(), parts.size());
    for (const Part& part : parts) {
      const auto entry = metadata.find(part.name);
      ASSERT_NE(entry, metadata.end()) << part.name;
      EXPECT_EQ(entry->second.offset_bytes % 256, 0u) << part.name;
      const auto& all = reader.allocations();
      const auto holder = std::find_if(all.begin(), all.end(), [&](const auto& one) {
        return one.allocation.allocation_id == entry->second.allocation_id;
      });
      ASSERT_NE(holder, all.end()) << part.name;
      ASSERT_LE(entry->second.offset_bytes + part.bytes.size(), holder->allocation.size);
      EXPECT_EQ(holder->allocation.tag, "weights");
      const auto bytes = bytes_at(holder->address + entry->second.offset_bytes, part.bytes.size());
      EXPECT_TRUE(bytes == part.bytes) << part.name;
      const auto read = gms::parse_tensor_metadata(entry->second.value);
      ASSERT_TRUE(read) << entry->second.value;
      EXPECT_EQ(gms::format_tensor_metadata(*read), entry->second.value);
      EXPECT_EQ(read->dtype, find_dtype(part.dtype)->torch_name);
    }
  }
};

// Two shards with an index.
std::string write_folder(const TempDir& dir, const std::vector<Part>& parts) {
  const auto middle = parts.begin() + 2;
  dir.write("model-00001-of-00002.safetensors", make_safetensors({parts.begin(), middle}));
  dir.write("model-00002-of-00002.safetensors", make_safetensors({middle, parts.end()}));
  std::string map;
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    map += (map.empty() ? "" : ",") + ("\"" + part->name) + "\":\"model-0000" +
           (part < middle ? "1" : "2") + "-of-00002.safetensors\"";
  }
  dir.write(kIndex, R"({"metadata":{},"weight_map":{)" + map + "}}");
  return dir.path();
}

TEST_F(Load, PublishesAFileByteForByte) {
  start();
  const auto parts = some_parts();
  const LoadReport report =
      publish(options(dir_.write("m.safetensors", make_safetensors(parts)), LockType::kRw));
  EXPECT_EQ(report.granted_lock_type, Grant::kRw);
  EXPECT_EQ(report.tensors, parts.size());
  EXPECT_EQ(report.allocations, 1u);
  EXPECT_EQ(report.bytes, 1'024'000u + 132 + 2 + 105 + 3'001'000);
  EXPECT_GT(report.seconds, 0);
  EXPECT_EQ(state().memory_layout_hash, report.memory_layout_hash);
  expect_published(parts);
}

TEST_F(Load, PublishesAFolderOfShardsByteForByte) {
  start();
  const auto parts = some_parts();
  publish(options(write_folder(dir_, parts)));
  expect_published(parts);
}

TEST_F(Load, PublishesThroughStagingBuffersByteForByte) {
  start();
  const auto parts = some_parts();
  LoadOptions staged = options(write_folder(dir_, parts));
  staged.ring = kMiB;
  staged.copy_threads = 3;
  staged.verify = true;
  staged.pin_content = true;
  const LoadReport report = publish(staged);
  expect_published(parts);
  // The hash does not depend on the way of copying.
  staged.role = LockType::kRw;
  staged.ring.reset();
  EXPECT_EQ(publish(staged).memory_layout_hash, report.memory_layout_hash);
  expect_published(parts);
}

// Large tensors and runs of small ones, unaligned to disk blocks, past the page cache if the file
// system of the test's folder supports that.
TEST_F(Load, PublishesFromTheDiskByteForByte) {
  start();
  std::vector<Part> parts = some_parts();
  for (int i = 0; i < 2000; ++i) {
    parts.push_back(make_part("small." + std::to_string(i), "U8", "[1001]", 1001,
                              static_cast<std::uint32_t>(i)));
  }
  const std::string path = dir_.write("m", make_safetensors(parts));
  for (const Ring ring : {Ring(), Ring(3 * kMiB)}) {
    forget(path);
    LoadOptions cold = options(path, LockType::kRw);
    cold.ring = ring;
    cold.copy_threads = 1;
    publish(cold);
    expect_published(parts);
  }
}

TEST_F(Load, PacksTensorsIntoSlabs) {
  start();
  const auto parts = some_parts();
  LoadOptions small = options(dir_.write("m", make_safetensors(parts)));
  small.slab = 2 * kMiB;
  EXPECT_EQ(publish(small).allocations, 2u);  // lm_head is larger than a slab
  expect_published(parts);
  small.slab = 0;
  small.role = LockType::kRw;
  EXPECT_EQ(publish(small).allocations, parts.size());
  expect_published(parts);
}

TEST_F(Load, GivesTheSameModelTheSameHash) {
  start();
  const std::string model = write_folder(dir_, some_parts());
  const gms::LayoutHash first = publish(options(model, LockType::kRw)).memory_layout_hash;
  EXPECT_EQ(first.value().size(), 64u);
  LoadOptions again = options(model, LockType::kRw);
  again.copy_threads = 1;
  EXPECT_EQ(publish(again).memory_layout_hash, first);
  again.slab = kMiB;
  EXPECT_NE(publish(again).memory_layout_hash, first);
}

TEST_F(Load, PinsTheContent) {
  start();
  auto parts = some_parts();
  LoadOptions pinned = options(dir_.write("m", make_safetensors(parts)), LockType::kRw);
  pinned.pin_content = true;
  const gms::LayoutHash first = publish(pinned).memory_layout_hash;
  EXPECT_EQ(publish(pinned).memory_layout_hash, first);
  gms::RpcClient rpc = gms::RpcClient::connect(socket_, gms::soon());
  ASSERT_TRUE(rpc.request_lock(LockType::kRo, gms::soon()).grant);
  EXPECT_THAT(
      rpc.get_metadata("model.empty")->value,
      StartsWith(
          R"({"digest": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "dtype")"));
  rpc = gms::RpcClient::connect(socket_, gms::soon());
  // A changed byte changes the layout only if the content is pinned.
  parts[0].bytes[5] ^= 1;
  pinned.model = dir_.write("n", make_safetensors(parts));
  EXPECT_NE(publish(pinned).memory_layout_hash, first);
}

TEST_F(Load, WithoutPinningTheHashDoesNotCoverTheContent) {
  start();
  auto parts = some_parts();
  const auto first = publish(options(dir_.write("m", make_safetensors(parts)), LockType::kRw));
  parts[0].bytes[5] ^= 1;
  const auto other = publish(options(dir_.write("n", make_safetensors(parts)), LockType::kRw));
  EXPECT_EQ(first.memory_layout_hash, other.memory_layout_hash);
}

TEST_F(Load, AReaderOfNothingInParticularImportsWhatIsThere) {
  start();
  publish(options(write_folder(dir_, some_parts())));
  EXPECT_EQ(publish(options("", LockType::kRo)).tensors, some_parts().size());
}

TEST_F(Load, AReaderWaitsUntilSomethingIsPublished) {
  start();
  const std::string model = write_folder(dir_, some_parts());
  LoadOptions reader = options(model, LockType::kRo);
  reader.verify = true;
  driver();
  auto reading = std::async(std::launch::async, [&] { return run(reader); });
  const LoadReport wrote = publish(options(model));
  const auto read = reading.get();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->granted_lock_type, Grant::kRo);
  EXPECT_EQ(read->memory_layout_hash, wrote.memory_layout_hash);
}

class LoadVerifies : public Load, public testing::WithParamInterface<Ring> {
 protected:
  LoadOptions verifying(const std::string& model, LockType role) const {
    LoadOptions made = options(model, role);
    made.verify = true;
    made.ring = GetParam();
    return made;
  }
};

class SimulatedLoadVerifies : public LoadVerifies {};

TEST_P(SimulatedLoadVerifies, TheWriterFindsCorruptionBeforeItPublishes) {
  start();
  LoadOptions writer = verifying(write_folder(dir_, some_parts()), LockType::kRw);
  writer.on_progress = [&](ByteCount done, ByteCount total) {
    if (done == total) corrupt_files();
  };
  const Failure failure = failure_of([&] { run(writer); });
  EXPECT_EQ(failure.status, ExitStatus::kSoftware);
  EXPECT_THAT(failure.message,
              HasSubstr("verify tensor 'model.embed': device memory differs from '"));
  expect_nothing_published();
}

TEST_P(LoadVerifies, TheReaderFindsOtherBytesThanTheModels) {
  start();
  const std::string model = write_folder(dir_, some_parts());
  publish(options(model));
  EXPECT_EQ(publish(verifying(model, LockType::kRo)).granted_lock_type, Grant::kRo);
  corrupt();
  EXPECT_EQ(status_of([&] { run(verifying(model, LockType::kRo)); }), ExitStatus::kBadData);
  EXPECT_TRUE(state().committed);
}

INSTANTIATE_TEST_SUITE_P(Ring, LoadVerifies, testing::ValuesIn(kRings));
INSTANTIATE_TEST_SUITE_P(Ring, SimulatedLoadVerifies, testing::ValuesIn(kRings));

// With and without --verify, whatever the role that made it a reader.
TEST_F(Load, AReaderFindsAnotherModel) {
  start();
  const auto parts = some_parts();
  publish(options(dir_.write("m", make_safetensors(parts))));
  const std::string path = dir_.path("other");
  const auto expect_refused = [&](const std::vector<Part>& other, const std::string& reason) {
    for (const LockType role : {LockType::kRo, LockType::kRwOrRo}) {
      const Failure failure =
          failure_of([&] { run(options(dir_.write("other", make_safetensors(other)), role)); });
      EXPECT_EQ(failure.status, ExitStatus::kBadData);
      EXPECT_EQ(failure.message, "import what '" + socket_ + "' published: tensor " + reason);
    }
    EXPECT_TRUE(state().committed);
  };
  auto other = parts;
  other[2].name = "model.renamed";
  expect_refused(other, "'model.renamed': missing");
  other = parts;
  other[2].shape = "[3,11]";
  expect_refused(other,
                 "'model.norm': torch.float32 [33], and torch.float32 [3, 11] in '" + path + "'");
  other = parts;
  other[4].dtype = "U8";
  expect_refused(other,
                 "'model.mask': torch.bool [3, 5, 7], and torch.uint8 [3, 5, 7] in '" + path + "'");
  other.assign(parts.begin(), parts.end() - 1);
  expect_refused(other, "'lm_head': not in '" + path + "'");
}

TEST_F(Load, AFileCutOffWhileItIsReadPublishesNothing) {
  start();
  const std::string path = dir_.write("m", make_safetensors(some_parts()));
  LoadOptions writer = options(path);
  writer.copy_threads = 1;
  writer.on_progress = [&](ByteCount done, ByteCount) {
    if (done == 0) std::filesystem::resize_file(path, 2'000'000);
  };
  const Failure failure = failure_of([&] { run(writer); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_THAT(failure.message, HasSubstr("it is truncated at byte 2000000"));
  expect_nothing_published();
}

TEST_F(Load, AFileWrittenToWhileItIsReadPublishesNothing) {
  start();
  const std::string path = dir_.write("m", make_safetensors(some_parts()));
  LoadOptions writer = options(path);
  writer.on_progress = [&](ByteCount done, ByteCount total) {
    if (done == total) std::ofstream(path, std::ios::in | std::ios::out).seekp(500) << "x";
  };
  const Failure failure = failure_of([&] { run(writer); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData);
  EXPECT_THAT(failure.message, HasSubstr("it was modified meanwhile"));
  expect_nothing_published();
}

// Every driver call of the loader fails once; threads and data must end in order, and nothing may
// be published.
class LoadFaults : public Load, public testing::WithParamInterface<const char*> {};

TEST_P(LoadFaults, PublishNothing) {
  start();
  gpu_.set("GMS_SIM_FAULTS", GetParam());
  LoadOptions writer = options(write_folder(dir_, some_parts()));
  writer.ring = kMiB;
  writer.slab = 64 * base::kKiB;
  writer.verify = true;
  writer.copy_threads = 2;
  EXPECT_EQ(status_of([&] { run(writer); }), ExitStatus::kSoftware);
  expect_nothing_published();
}

INSTANTIATE_TEST_SUITE_P(Calls, LoadFaults,
                         testing::Values("cuMemAddressReserve:1=unknown", "cuMemMap:2=unknown",
                                         "cuMemSetAccess:1=unknown",
                                         "cuMemImportFromShareableHandle:2=unknown",
                                         "cuDevicePrimaryCtxRetain:1=unknown",
                                         "cuCtxSetCurrent:1=unknown", "cuStreamCreate:2=unknown",
                                         "cuMemHostAlloc:2=unknown", "cuMemcpyHtoDAsync:5=unknown",
                                         "cuMemcpyDtoH:3=unknown", "cuStreamSynchronize:7=unknown",
                                         "cuStreamSynchronize:*=unknown",
                                         "cuCtxSynchronize:1=unknown"));

TEST(Role, ComesFromTheEngineId) {
  test::Environment environment{"ENGINE_ID"};
  EXPECT_EQ(role_from_env(), LockType::kRwOrRo);
  for (const auto& [id, role] :
       {std::pair{"0", LockType::kRwOrRo}, {"1", LockType::kRo}, {"17", LockType::kRo}}) {
    environment.set("ENGINE_ID", id);
    EXPECT_EQ(role_from_env(), role) << id;
  }
  for (const char* id : {"", "-1", "x", "1x", " 1", "99999999999999999999"}) {
    environment.set("ENGINE_ID", id);
    EXPECT_EQ(status_of([] { role_from_env(); }), ExitStatus::kConfig) << id;
  }
}

TEST(LoadReport, IsOneLineForPeopleAndForPrograms) {
  LoadReport report{.bytes = 3 * base::kGiB,
                    .seconds = 1.5,
                    .tensors = 7,
                    .allocations = 3,
                    .memory_layout_hash = gms::LayoutHash("abc"),
                    .granted_lock_type = Grant::kRw};
  EXPECT_EQ(format_text(report),
            "published 7 tensors, 3 GiB in 3 allocations, in 1.500 s (2 GiB/s), layout abc");
  EXPECT_EQ(format_json(report),
            R"({"bytes": 3221225472, "seconds": 1.500000, "tensors": 7, "allocations": 3, )"
            R"("memory_layout_hash": "abc", "granted_lock_type": "rw"})");
  report.granted_lock_type = Grant::kRo;
  EXPECT_THAT(format_text(report), StartsWith("imported 7 tensors"));
}

}  // namespace
}  // namespace fo::weights
