#include "weights/snapshot/snapshot_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/sha256.h"
#include "json/reader.h"
#include "text/ascii.h"
#include "text/base64.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using nlohmann::json;

constexpr const char* kVersion = "1.0";
constexpr ByteCount kMax = std::numeric_limits<std::int64_t>::max();

// A normalised relative path that stays below its folder.
bool is_below(std::string_view path) {
  if (path.empty() || path.size() > kMaxSnapshotName || path.find('\0') != path.npos) return false;
  const std::vector<std::string_view> parts = text::split(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](std::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
}

// {"version": "1.0", "layout_hash": "..", "allocations": [{"allocation_id": "..", ..}, ..]}
class ManifestReader final : public fo::json::JsonReader {
 public:
  using fo::json::JsonReader::JsonReader;

  SnapshotManifest take() {
    if (manifest_.layout_hash.empty()) fo::json::refuse_file(file(), "missing layout_hash");
    if (!listed_) fo::json::refuse_file(file(), "missing allocations");
    return std::move(manifest_);
  }

 protected:
  bool on_value(fo::json::JsonValue value) override {
    if (depth() == 0) {
      if (value.kind != Kind::kObject) fo::json::refuse_file(file(), "not a JSON object");
      return true;
    }
    if (depth() == 1) return top_level(std::move(value));
    if (depth() == 2) {
      if (manifest_.allocations.size() == kMaxSnapshotAllocations) {
        fo::json::refuse_file(file(), "too many allocations");
      }
      if (value.kind != Kind::kObject) fail_allocation("not an object");
      current_ = {};
      fields_ = 0;
      return true;
    }
    field(std::move(value));
    return false;
  }

  void on_end() override {
    if (depth() == 2) finish();
  }

 private:
  enum Field : unsigned {
    kId = 1,
    kSize = 2,
    kAlignedSize = 4,
    kTag = 8,
    kFile = 16,
    kNeeded = 31,
    kOffset = 32,
  };

  [[noreturn]] void fail_allocation(const std::string& reason) const {
    fo::json::refuse_file(
        file(), "allocation " + std::to_string(manifest_.allocations.size()) + ": " + reason);
  }

  bool top_level(fo::json::JsonValue value) {
    const bool is_text = value.kind == Kind::kText;
    if (last_key() == "version" && (!is_text || value.text != kVersion)) {
      fo::json::refuse_file(file(), "version " + (is_text ? base::quoted(value.text) : "unknown") +
                                        ", expected " + kVersion);
    }
    if (last_key() == "layout_hash") {
      if (!manifest_.layout_hash.empty())
        fo::json::refuse_file(file(), "layout_hash appears twice");
      if (!gms::is_layout_hash(value.text))
        fo::json::refuse_file(file(), "its layout_hash is not a layout hash");
      manifest_.layout_hash = gms::LayoutHash(std::move(value.text));
    }
    if (last_key() != "allocations") return false;
    if (std::exchange(listed_, true)) fo::json::refuse_file(file(), "allocations appears twice");
    if (value.kind != Kind::kList) fo::json::refuse_file(file(), "allocations is not a list");
    return true;
  }

  void field(fo::json::JsonValue value) {
    const std::string& name = last_key();
    if (name == "allocation_id") {
      current_.allocation_id = gms::AllocationId(take_text(kId, value));
    } else if (name == "tag") {
      current_.tag = take_text(kTag, value);
    } else if (name == "tensor_file") {
      current_.tensor_file = take_text(kFile, value);
    } else if (name == "size") {
      take_number(kSize, value, current_.size);
    } else if (name == "aligned_size") {
      take_number(kAlignedSize, value, current_.aligned_size);
    } else if (name == "tensor_offset") {
      take_number(kOffset, value, current_.tensor_offset);
    }
  }

  void see(Field field) {
    if ((fields_ & field) != 0) fail_allocation(last_key() + " appears twice");
    fields_ |= field;
  }

  std::string take_text(Field field, fo::json::JsonValue& value) {
    see(field);
    if (value.kind != Kind::kText) fail_allocation("its " + last_key() + " is not a string");
    if (value.text.size() > kMaxSnapshotName) {
      fail_allocation("its " + last_key() + " is too long");
    }
    return std::move(value.text);
  }

  void take_number(Field field, const fo::json::JsonValue& value, ByteCount& to) {
    see(field);
    if (value.kind != Kind::kNumber || value.number > kMax) {
      fail_allocation("its " + last_key() + " is not a size");
    }
    to = value.number;
  }

  void finish() {
    if ((fields_ & kNeeded) != kNeeded) {
      fail_allocation("missing allocation_id, size, aligned_size, tag or tensor_file");
    }
    if (current_.allocation_id.empty()) fail_allocation("its allocation_id is empty");
    if (current_.size == 0) fail_allocation("its size is 0");
    if (current_.aligned_size < current_.size)
      fail_allocation("its size is larger than its aligned_size");
    if (!is_below(current_.tensor_file)) {
      fail_allocation("its tensor_file " + base::quoted(current_.tensor_file) +
                      " is not a path within the snapshot");
    }
    if (current_.tensor_offset > kMax - current_.aligned_size ||
        current_.aligned_size > kMax - total_) {
      fail_allocation("too large");
    }
    total_ += current_.aligned_size;
    if (!ids_.insert(current_.allocation_id).second) {
      fail_allocation("its allocation_id appears twice");
    }
    manifest_.allocations.push_back(std::move(current_));
  }

  SnapshotManifest manifest_;
  SnapshotAllocation current_;
  unsigned fields_ = 0;
  bool listed_ = false;
  ByteCount total_ = 0;
  std::unordered_set<gms::AllocationId> ids_;
};

void check_overlaps(const SnapshotManifest& manifest, const std::string& file) {
  std::vector<std::size_t> order(manifest.allocations.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto place = [&](std::size_t i) {
    const SnapshotAllocation& one = manifest.allocations[i];
    return std::pair<std::string_view, ByteCount>(one.tensor_file, one.tensor_offset);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t one, std::size_t other) { return place(one) < place(other); });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const SnapshotAllocation& before = manifest.allocations[order[i - 1]];
    const SnapshotAllocation& after = manifest.allocations[order[i]];
    if (before.tensor_file == after.tensor_file &&
        before.tensor_offset + before.aligned_size > after.tensor_offset) {
      fo::json::refuse_file(
          file, fmt::format("allocation {}: its bytes overlap those of allocation {}", order[i],
                            order[i - 1]));
    }
  }
}

// {"key": {"allocation_id": "..", "offset_bytes": 0, "value": "base64"}, ..}
class MetadataReader final : public fo::json::JsonReader {
 public:
  MetadataReader(const SnapshotManifest& manifest, const std::string& file)
      : fo::json::JsonReader(file) {
    for (const SnapshotAllocation& one : manifest.allocations) {
      aligned_size_.emplace(one.allocation_id.value(), one.aligned_size);
    }
  }

  gms::Metadata take() { return std::move(metadata_); }

 protected:
  void on_key() override {
    if (depth() == 1) name_ = last_key();
  }

  bool on_value(fo::json::JsonValue value) override {
    if (depth() == 0) {
      if (value.kind != Kind::kObject) fo::json::refuse_file(file(), "not a JSON object");
      return true;
    }
    if (depth() == 1) {
      if (metadata_.size() == gms::kMaxListSize) fo::json::refuse_file(file(), "too many keys");
      if (name_.size() > gms::kMaxName) fail_key("too long");
      if (value.kind != Kind::kObject) fail_key("not an object");
      current_ = {};
      fields_ = 0;
      return true;
    }
    field(std::move(value));
    return false;
  }

  void on_end() override {
    if (depth() == 1) finish();
  }

 private:
  enum Field : unsigned { kId = 1, kOffset = 2, kValue = 4, kAll = 7 };

  [[noreturn]] void fail_key(const std::string& reason) const {
    fo::json::refuse_file(file(), "key " + base::quoted(name_) + ": " + reason);
  }

  void see(Field field, bool is_right) {
    if ((fields_ & field) != 0) fail_key(last_key() + " appears twice");
    fields_ |= field;
    if (!is_right) fail_key("its " + last_key() + " has the wrong type");
  }

  void field(fo::json::JsonValue value) {
    if (last_key() == "allocation_id") {
      see(kId, value.kind == Kind::kText);
      current_.allocation_id = gms::AllocationId(std::move(value.text));
    } else if (last_key() == "offset_bytes") {
      see(kOffset, value.kind == Kind::kNumber);
      current_.offset_bytes = value.number;
    } else if (last_key() == "value") {
      see(kValue, value.kind == Kind::kText);
      auto bytes = text::decode_base64(value.text);
      if (!bytes) fail_key("its value is not base64");
      if (bytes->size() > gms::kMaxMetadataValue) fail_key("its value is too large");
      current_.value = std::move(*bytes);
    }
  }

  void finish() {
    if (fields_ != kAll) fail_key("missing allocation_id, offset_bytes or value");
    const auto found = aligned_size_.find(current_.allocation_id.value());
    if (found == aligned_size_.end()) fail_key("its allocation is not in the manifest");
    if (current_.offset_bytes >= found->second) fail_key("its offset_bytes is past the allocation");
    if (!metadata_.emplace(name_, std::move(current_)).second) fail_key("it appears twice");
  }

  std::unordered_map<std::string_view, ByteCount> aligned_size_;
  gms::Metadata metadata_;
  std::string name_;
  gms::MetadataEntry current_;
  unsigned fields_ = 0;
};

std::string json_text(std::string_view text) {
  // JSON cannot represent invalid UTF-8; dump() throws then.
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw base::Error(base::ExitStatus::kBadData, "save " + base::quoted(text) + ": not UTF-8");
  }
}

}  // namespace

void place_in_shards(SnapshotManifest& manifest) {
  constexpr ByteCount kShardSize = 4 * base::kGiB;
  std::size_t shard = 0;
  ByteCount end = 0;
  for (SnapshotAllocation& one : manifest.allocations) {
    if (end > 0 && (end > kShardSize || one.aligned_size > kShardSize - end)) {
      ++shard;
      end = 0;
    }
    one.tensor_file = fmt::format("shards/shard_{:04}.bin", shard);
    one.tensor_offset = end;
    end += one.aligned_size;
  }
}

SnapshotManifest parse_manifest(std::string_view text, const std::string& file) {
  ManifestReader reader(file);
  reader.read(text);
  SnapshotManifest manifest = reader.take();
  check_overlaps(manifest, file);
  return manifest;
}

std::string format_manifest(const SnapshotManifest& manifest, double timestamp,
                            base::DeviceOrdinal device) {
  std::string text = fmt::format(
      "{{\n  \"version\": \"{}\",\n  \"timestamp\": {:.6f},\n  \"layout_hash\": {},\n"
      "  \"device\": {},\n  \"allocations\": [",
      kVersion, timestamp, json_text(manifest.layout_hash.value()), device.value());
  const char* separator = "\n";
  for (const SnapshotAllocation& one : manifest.allocations) {
    text +=
        fmt::format(R"({}    {{"allocation_id": {}, "size": {}, "aligned_size": {}, "tag": {}, )"
                    R"("tensor_file": {}, "tensor_offset": {}}})",
                    separator, json_text(one.allocation_id.value()), one.size, one.aligned_size,
                    json_text(one.tag), json_text(one.tensor_file), one.tensor_offset);
    separator = ",\n";
  }
  return text + "\n  ]\n}\n";
}

gms::Metadata parse_snapshot_metadata(std::string_view text, const SnapshotManifest& manifest,
                                      const std::string& file) {
  MetadataReader reader(manifest, file);
  reader.read(text);
  return reader.take();
}

std::string format_snapshot_metadata(const gms::Metadata& metadata) {
  std::string text = "{";
  const char* separator = "\n";
  for (const auto& [key, entry] : metadata) {
    text += fmt::format(R"({}  {}: {{"allocation_id": {}, "offset_bytes": {}, "value": "{}"}})",
                        separator, json_text(key), json_text(entry.allocation_id.value()),
                        entry.offset_bytes, text::encode_base64(entry.value));
    separator = ",\n";
  }
  return text + "\n}\n";
}

gms::Layout layout_of(const SnapshotManifest& manifest, const gms::Metadata& metadata) {
  gms::Layout layout;
  for (const SnapshotAllocation& one : manifest.allocations) {
    layout.add(one.allocation_id, one.size, one.aligned_size, one.tag);
  }
  put_all(layout, metadata);
  return layout;
}

void put_all(gms::Layout& layout, const gms::Metadata& metadata) {
  for (const auto& [key, entry] : metadata) {
    layout.put(key, entry.allocation_id, static_cast<std::int64_t>(entry.offset_bytes),
               entry.value);
  }
}

std::string checksum_of(std::string_view text) {
  gms::Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.finish();
}

std::map<std::string, std::string> parse_checksums(std::string_view text, const std::string& file) {
  constexpr std::size_t kHex = 64;
  std::map<std::string, std::string> checksums;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    const bool is_line = end != text.npos && one.size() > kHex + 2 &&
                         gms::is_layout_hash(one.substr(0, kHex)) && one[kHex] == ' ' &&
                         (one[kHex + 1] == ' ' || one[kHex + 1] == '*');
    const std::string_view name = is_line ? one.substr(kHex + 2) : std::string_view();
    if (!is_below(name)) {
      fo::json::refuse_file(
          file,
          fmt::format("line {} is not a SHA-256, two spaces and a file within the snapshot", line));
    }
    if (!checksums.emplace(name, one.substr(0, kHex)).second) {
      fo::json::refuse_file(file, "file " + base::quoted(name) + " appears twice");
    }
  }
  return checksums;
}

std::string format_checksums(const std::map<std::string, std::string>& checksums) {
  std::string text;
  for (const auto& [name, sum] : checksums) text += sum + "  " + name + "\n";
  return text;
}

}  // namespace fo::weights
