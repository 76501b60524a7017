#include "gms/layout_record.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.h"
#include "gms/protocol.h"

namespace fo::gms {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::size_t kNoLimit = std::numeric_limits<std::uint32_t>::max();

// Takes the frame at the front.
template <typename Message>
Message take(std::string_view& bytes) {
  const std::size_t size = bytes.size() < kPrefixSize ? bytes.size() : read_prefix(bytes);
  if (bytes.size() < kPrefixSize + size) {
    throw Error(ExitStatus::kSoftware, "read a layout's record: truncated");
  }
  const std::string_view body = bytes.substr(kPrefixSize, size);
  bytes.remove_prefix(kPrefixSize + size);
  return decode_message<Message>(body);
}

}  // namespace

// The messages that tell a reader the same things.
std::string encode_record(const Layout& layout, const std::string& hash, bool published) {
  GetLockStateResponse state;
  state.committed = published;
  ExportLayoutResponse allocations;
  for (const auto& [slot, allocation] : layout.allocations()) {
    allocations.allocations.push_back({to_record(allocation)});
  }
  allocations.next_slot = static_cast<std::int64_t>(layout.next_slot());
  allocations.memory_layout_hash = hash;
  MetadataDumpResponse metadata;
  for (const auto& [key, entry] : layout.metadata()) {
    metadata.entries.push_back(to_record(key, entry));
  }
  return encode_frame(state) + encode_frame(allocations, kNoLimit) +
         encode_frame(metadata, kNoLimit);
}

LayoutRecord decode_record(std::string_view bytes) {
  LayoutRecord record;
  record.published = take<GetLockStateResponse>(bytes).committed;
  auto allocations = take<ExportLayoutResponse>(bytes);
  for (AllocationRecord& one : allocations.allocations) {
    record.layout.restore({std::move(one.allocation_id), static_cast<base::ByteCount>(one.size),
                           static_cast<base::ByteCount>(one.aligned_size), std::move(one.tag),
                           static_cast<std::uint64_t>(one.layout_slot)});
  }
  record.layout.skip_slots(static_cast<std::uint64_t>(allocations.next_slot.value_or(0)));
  auto metadata = take<MetadataDumpResponse>(bytes);
  for (MetadataRecord& one : metadata.entries) {
    record.layout.put(std::move(one.key), one.allocation_id, one.offset_bytes,
                      std::move(one.value.data));
  }
  record.hash = layout_hash(record.layout);
  if (record.hash != allocations.memory_layout_hash || !bytes.empty()) {
    throw Error(ExitStatus::kSoftware, "read a layout's record: it is of another layout than " +
                                           allocations.memory_layout_hash);
  }
  return record;
}

}  // namespace fo::gms
