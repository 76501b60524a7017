// A snapshot beside a gms-serve, for tests of writing, reading and dropping.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "os/file/file.h"
#include "served.h"
#include "weights/load.h"
#include "weights/save.h"
#include "weights/unpublish.h"

namespace fo::weights {

inline std::string content_of(const std::string& path) { return os::read_file(path, base::kGiB); }

class SnapshotDirectory : public Served {
 protected:
  LoadOptions loading(const std::string& folder, gms::LockType role = gms::LockType::kRw) const {
    LoadOptions made;
    made.snapshot = folder;
    made.role = role;
    made.timeout = std::chrono::seconds(20);
    return made;
  }
  std::optional<LoadReport> run(const LoadOptions& options) {
    return load(open_source(options), driver(), device(), socket_, options);
  }

  // Several allocations, with sizes that are not multiples of the granularity. Starts the server if
  // there is none.
  LoadReport publish_model() {
    if (!server_) start();
    LoadOptions model;
    model.model = dir_.write("m.safetensors", make_safetensors(some_parts()));
    model.role = gms::LockType::kRw;
    model.timeout = std::chrono::seconds(20);
    model.slab = 64 * base::kKiB;
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

  // The published layout without ids, by slot and by key.
  struct Content {
    gms::LayoutHash hash;
    std::vector<std::tuple<base::ByteCount, base::ByteCount, std::string, std::uint64_t>>
        allocations;
    std::vector<std::string> bytes;
    std::map<std::string, std::tuple<std::uint64_t, base::ByteCount, std::string>> metadata;
    bool operator==(const Content&) const = default;
  };
  Content published() {
    Content content;
    const auto context = this->context();
    gms::MemoryManager reader(driver(), device(), socket_);
    EXPECT_EQ(reader.connect(gms::LockType::kRo, gms::soon()), gms::Grant::kRo);
    reader.import_all(cuda::Access::kRead);
    content.hash = reader.layout_hash();
    std::map<gms::AllocationId, std::uint64_t> slot_of;
    for (const auto& [one, address] : reader.allocations()) {
      content.allocations.emplace_back(one.size, one.aligned_size, one.tag, one.layout_slot);
      content.bytes.push_back(bytes_at(address, one.aligned_size));
      slot_of[one.allocation_id] = one.layout_slot;
    }
    for (const auto& [key, entry] : reader.fetch_metadata()) {
      content.metadata[key] = {slot_of.at(entry.allocation_id), entry.offset_bytes, entry.value};
    }
    return content;
  }

  void expect_refused(const LoadOptions& options, base::ExitStatus status,
                      const std::string& reason) {
    const Failure failure = failure_of([&] { run(options); });
    EXPECT_EQ(failure.status, status) << failure.message;
    EXPECT_THAT(failure.message, testing::HasSubstr(reason));
  }

  // The names beside the snapshot with its prefix.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("snap")) found.push_back(name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string snap_ = dir_.path("snap");
};

class SimulatedSnapshotDirectory : public SnapshotDirectory {};

}  // namespace fo::weights
