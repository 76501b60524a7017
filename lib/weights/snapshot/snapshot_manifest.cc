#include "weights/snapshot/snapshot_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "gms/protocol/protocol.h"
#include "gms/protocol/sha256.h"
#include "json/scanner.h"
#include "text/ascii.h"
#include "text/base64.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using fo::json::refuse_file;
using fo::json::scan_file;
using fo::json::Scanner;
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
class ManifestReader {
 public:
  ManifestReader(Scanner& scanner, const std::string& file) : scanner_(scanner), file_(file) {}

  SnapshotManifest read() {
    if (scanner_.kind() != Kind::kObject) refuse_file(file_, "not a JSON object");
    scanner_.object([this](std::string_view name) { top_level(name); });
    if (manifest_.layout_hash.empty()) refuse_file(file_, "missing layout_hash");
    if (!listed_) refuse_file(file_, "missing allocations");
    return std::move(manifest_);
  }

 private:
  using Kind = Scanner::Kind;
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
    refuse_file(file_, fmt::format("allocation {}: {}", manifest_.allocations.size(), reason));
  }

  void top_level(std::string_view name) {
    const bool is_text = scanner_.kind() == Kind::kText;
    if (name == "version") {
      const std::string version = is_text ? scanner_.text() : "";
      if (version != kVersion) {
        refuse_file(file_, "version " + (is_text ? base::quoted(version) : "unknown") +
                               ", expected " + kVersion);
      }
    } else if (name == "layout_hash") {
      if (!manifest_.layout_hash.empty()) refuse_file(file_, "layout_hash appears twice");
      manifest_.layout_hash = gms::LayoutHash(is_text ? scanner_.text() : "");
      if (!gms::is_layout_hash(manifest_.layout_hash.value()))
        refuse_file(file_, "its layout_hash is not a layout hash");
    } else if (name == "allocations") {
      if (std::exchange(listed_, true)) refuse_file(file_, "allocations appears twice");
      if (scanner_.kind() != Kind::kList) refuse_file(file_, "allocations is not a list");
      scanner_.list([this] { read_allocation(); });
    } else {
      scanner_.skip();
    }
  }

  void read_allocation() {
    if (manifest_.allocations.size() == kMaxSnapshotAllocations)
      refuse_file(file_, "too many allocations");
    if (scanner_.kind() != Kind::kObject) fail_allocation("not an object");
    current_ = {};
    fields_ = 0;
    scanner_.object([this](std::string_view name) { field(name); });
    finish();
  }

  void field(std::string_view name) {
    if (name == "allocation_id") {
      current_.allocation_id = gms::AllocationId(text(kId, name));
    } else if (name == "tag") {
      current_.tag = text(kTag, name);
    } else if (name == "tensor_file") {
      current_.tensor_file = text(kFile, name);
    } else if (name == "size") {
      current_.size = number(kSize, name);
    } else if (name == "aligned_size") {
      current_.aligned_size = number(kAlignedSize, name);
    } else if (name == "tensor_offset") {
      current_.tensor_offset = number(kOffset, name);
    } else {
      scanner_.skip();
    }
  }

  void see(Field field, std::string_view name) {
    if ((fields_ & field) != 0) fail_allocation(fmt::format("{} appears twice", name));
    fields_ |= field;
  }

  std::string text(Field field, std::string_view name) {
    see(field, name);
    if (scanner_.kind() != Kind::kText)
      fail_allocation(fmt::format("its {} is not a string", name));
    std::string text = scanner_.text();
    if (text.size() > kMaxSnapshotName) fail_allocation(fmt::format("its {} is too long", name));
    return text;
  }

  ByteCount number(Field field, std::string_view name) {
    see(field, name);
    const bool is_number = scanner_.kind() == Kind::kNumber;
    const std::optional<ByteCount> number = is_number ? scanner_.number() : std::nullopt;
    if (!number || *number > kMax) fail_allocation(fmt::format("its {} is not a size", name));
    return *number;
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

  Scanner& scanner_;
  const std::string& file_;
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
      refuse_file(file, fmt::format("allocation {}: its bytes overlap those of allocation {}",
                                    order[i], order[i - 1]));
    }
  }
}

// {"key": {"allocation_id": "..", "offset_bytes": 0, "value": "base64"}, ..}
class MetadataReader {
 public:
  MetadataReader(Scanner& scanner, const SnapshotManifest& manifest, const std::string& file)
      : scanner_(scanner), file_(file) {
    for (const SnapshotAllocation& one : manifest.allocations) {
      aligned_size_.emplace(one.allocation_id.value(), one.aligned_size);
    }
  }

  gms::Metadata read() {
    if (scanner_.kind() != Kind::kObject) refuse_file(file_, "not a JSON object");
    scanner_.object([this](std::string_view name) { read_key(name); });
    return std::move(metadata_);
  }

 private:
  using Kind = Scanner::Kind;
  enum Field : unsigned { kId = 1, kOffset = 2, kValue = 4, kAll = 7 };

  [[noreturn]] void fail_key(const std::string& reason) const {
    refuse_file(file_, "key " + base::quoted(name_) + ": " + reason);
  }

  void read_key(std::string_view name) {
    name_ = name;
    if (metadata_.size() == gms::kMaxListSize) refuse_file(file_, "too many keys");
    if (name_.size() > gms::kMaxName) fail_key("too long");
    if (scanner_.kind() != Kind::kObject) fail_key("not an object");
    current_ = {};
    fields_ = 0;
    scanner_.object([this](std::string_view field) { read_field(field); });
    finish();
  }

  void see(Field field, std::string_view name, Kind kind) {
    if ((fields_ & field) != 0) fail_key(fmt::format("{} appears twice", name));
    fields_ |= field;
    if (scanner_.kind() != kind) fail_key(fmt::format("its {} has the wrong type", name));
  }

  void read_field(std::string_view name) {
    if (name == "allocation_id") {
      see(kId, name, Kind::kText);
      current_.allocation_id = gms::AllocationId(scanner_.text());
    } else if (name == "offset_bytes") {
      see(kOffset, name, Kind::kNumber);
      const std::optional<ByteCount> number = scanner_.number();
      if (!number) fail_key("its offset_bytes has the wrong type");
      current_.offset_bytes = *number;
    } else if (name == "value") {
      see(kValue, name, Kind::kText);
      auto bytes = text::decode_base64(scanner_.text());
      if (!bytes) fail_key("its value is not base64");
      if (bytes->size() > gms::kMaxMetadataValue) fail_key("its value is too large");
      current_.value = std::move(*bytes);
    } else {
      scanner_.skip();
    }
  }

  void finish() {
    if (fields_ != kAll) fail_key("missing allocation_id, offset_bytes or value");
    const auto found = aligned_size_.find(current_.allocation_id.value());
    if (found == aligned_size_.end()) fail_key("its allocation is not in the manifest");
    if (current_.offset_bytes >= found->second) fail_key("its offset_bytes is past the allocation");
    if (!metadata_.emplace(name_, std::move(current_)).second) fail_key("it appears twice");
  }

  Scanner& scanner_;
  const std::string& file_;
  std::unordered_map<std::string_view, ByteCount> aligned_size_;
  gms::Metadata metadata_;
  std::string_view name_;
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
  SnapshotManifest manifest;
  scan_file(text, file, [&](Scanner& scanner) { manifest = ManifestReader(scanner, file).read(); });
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
  gms::Metadata metadata;
  scan_file(text, file,
            [&](Scanner& scanner) { metadata = MetadataReader(scanner, manifest, file).read(); });
  return metadata;
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
      refuse_file(
          file,
          fmt::format("line {} is not a SHA-256, two spaces and a file within the snapshot", line));
    }
    if (!checksums.emplace(name, one.substr(0, kHex)).second) {
      refuse_file(file, "file " + base::quoted(name) + " appears twice");
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
