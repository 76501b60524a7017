// The text files of a snapshot directory. The first byte selects one; a metadata file is combined
// with a fixed manifest.
#include <string>

#include "fuzz.h"
#include "text/base64.h"
#include "weights/snapshot/snapshot_manifest.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;

// An accepted path must not lead out of the folder.
void check_below(const std::string& path) {
  require(!path.empty() && path.front() != '/' && path.back() != '/', "a path is relative");
  const std::string padded = "/" + path + "/";
  require(padded.find("/../") == padded.npos && padded.find("/./") == padded.npos &&
              padded.find("//") == padded.npos && path.find('\0') == path.npos,
          "a path stays in the folder, in its one spelling");
}

void check_manifest(std::string_view text) {
  const auto manifest =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_manifest(text, "f"); });
  if (!manifest) return;
  const auto& all = manifest->allocations;
  ByteCount sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const SnapshotAllocation& one = all[i];
    require(one.size > 0 && one.size <= one.aligned_size, "a size is one");
    require(!__builtin_add_overflow(sum, one.aligned_size, &sum) && sum >> 63 == 0,
            "all together are under 2^63 bytes");
    require((one.tensor_offset + one.aligned_size) >> 63 == 0, "an offset is one");
    check_below(one.tensor_file);
    for (std::size_t j = 0; j < i; ++j) {
      require(all[j].allocation_id != one.allocation_id, "ids differ");
      require(all[j].tensor_file != one.tensor_file ||
                  all[j].tensor_offset + all[j].aligned_size <= one.tensor_offset ||
                  one.tensor_offset + one.aligned_size <= all[j].tensor_offset,
              "no two share bytes");
    }
  }
  const SnapshotManifest again =
      parse_manifest(format_manifest(*manifest, 1e9, base::DeviceOrdinal(0)), "f");
  require(again.layout_hash == manifest->layout_hash && again.allocations == all,
          "the round trip changes nothing");
}

void check_metadata(std::string_view text) {
  SnapshotManifest manifest;
  manifest.allocations = {{gms::AllocationId("a"), 5, 8, "t", "s", 0},
                          {gms::AllocationId("b"), 1, 4096, "t", "s", 8}};
  const auto metadata = unless_refused(
      {ExitStatus::kBadData}, [&] { return parse_snapshot_metadata(text, manifest, "f"); });
  if (!metadata) return;
  for (const auto& [key, entry] : *metadata) {
    require(entry.allocation_id.value() == "a" || entry.allocation_id.value() == "b",
            "a key has its allocation");
    require(entry.offset_bytes < (entry.allocation_id.value() == "a" ? 8U : 4096U),
            "a key points into it");
  }
  require(parse_snapshot_metadata(format_snapshot_metadata(*metadata), manifest, "f") == *metadata,
          "the round trip changes nothing");
}

void check_checksums(std::string_view text) {
  const auto checksums =
      unless_refused({ExitStatus::kBadData}, [&] { return parse_checksums(text, "f"); });
  if (!checksums) return;
  for (const auto& [name, sum] : *checksums) {
    check_below(name);
    require(sum.size() == 64, "a SHA-256 has 64 digits");
  }
  require(parse_checksums(format_checksums(*checksums), "f") == *checksums,
          "the round trip changes nothing");
}

void check_base64(std::string_view text) {
  const auto bytes = text::decode_base64(text);
  if (bytes) require(text::encode_base64(*bytes) == text, "there is one spelling");
  require(text::decode_base64(text::encode_base64(text)) == text, "what is encoded decodes");
}

void fuzz_one(fuzz::Input input) {
  const std::size_t choice = input.below(4);
  const std::string_view text = input.rest();
  if (choice == 0) check_manifest(text);
  if (choice == 1) check_metadata(text);
  if (choice == 2) check_checksums(text);
  if (choice == 3) check_base64(text);
}

}  // namespace
}  // namespace fo::weights

FO_FUZZER(fo::weights::fuzz_one)
