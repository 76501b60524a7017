#include "gms/protocol/layout_record.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "gms/protocol/protocol.h"

namespace fo::gms {
namespace {

using base::Error;
using base::ExitStatus;

constexpr std::size_t kPart = std::size_t{128} * 1024;
constexpr std::size_t kAllocationsInPart = 1024;

// `size` bytes, or fewer at the end of the file.
std::string read_at(int fd, std::size_t size, off_t offset) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, size - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) base::throw_errno(errno, "read a layout's record");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

RecordWriter::RecordWriter(const Layout& layout, LayoutHash hash, bool published)
    : layout_(layout),
      hash_(std::move(hash)),
      published_(published),
      next_allocation_(layout.allocations().begin()),
      next_key_(layout.metadata().begin()) {}

// Each part is a frame with the message that has the same content in the protocol.
std::string RecordWriter::next() {
  if (!has_begun_) {
    has_begun_ = true;
    GetLockStateResponse state;
    state.committed = published_;
    return encode_frame(state);
  }
  const auto& allocations = layout_.allocations();
  if (!has_head_ || next_allocation_ != allocations.end()) {
    has_head_ = true;
    ExportLayoutResponse part;
    part.next_slot = static_cast<std::int64_t>(layout_.next_slot());
    part.memory_layout_hash = hash_;
    for (; next_allocation_ != allocations.end() && part.allocations.size() < kAllocationsInPart;
         ++next_allocation_) {
      part.allocations.push_back({to_record(next_allocation_->second)});
    }
    return encode_frame(part);
  }
  const Metadata& metadata = layout_.metadata();
  if (next_key_ == metadata.end()) return {};
  MetadataDumpResponse part;
  for (std::size_t size = 0; next_key_ != metadata.end() && size < kPart; ++next_key_) {
    size += size_on_wire(next_key_->first, next_key_->second);
    part.entries.push_back(to_record(next_key_->first, next_key_->second));
  }
  return encode_frame(part);
}

void RecordReader::add(std::string_view message) {
  const std::string type = message_type(message);
  if (type == GetLockStateResponse::kType) {
    record_.published = decode_message<GetLockStateResponse>(message).committed;
  } else if (type == ExportLayoutResponse::kType) {
    auto part = decode_message<ExportLayoutResponse>(message);
    for (AllocationRecord& one : part.allocations) {
      record_.layout.restore({std::move(one.allocation_id), static_cast<base::ByteCount>(one.size),
                              static_cast<base::ByteCount>(one.aligned_size), std::move(one.tag),
                              static_cast<std::uint64_t>(one.layout_slot)});
    }
    next_slot_ = static_cast<std::uint64_t>(part.next_slot.value_or(0));
    record_.hash = std::move(part.memory_layout_hash);
  } else {
    auto part = decode_message<MetadataDumpResponse>(message);
    for (MetadataRecord& one : part.entries) {
      record_.layout.put(std::move(one.key), std::move(one.allocation_id), one.offset_bytes,
                         std::move(one.value.data));
    }
  }
}

LayoutRecord RecordReader::finish() {
  record_.layout.skip_slots(next_slot_);
  if (record_.hash != layout_hash(record_.layout)) {
    throw Error(ExitStatus::kSoftware,
                "read a layout's record: it does not belong to layout " + record_.hash.value());
  }
  return std::move(record_);
}

LayoutRecord read_record(int fd) {
  RecordReader reader;
  for (off_t at = 0;;) {
    const std::string prefix = read_at(fd, kPrefixSize, at);
    if (prefix.empty()) return reader.finish();
    const std::size_t size = prefix.size() < kPrefixSize ? 0 : read_prefix(prefix);
    at += static_cast<off_t>(kPrefixSize);
    const std::string message =
        size == 0 || size > kMaxResponseFrame ? std::string() : read_at(fd, size, at);
    if (message.empty() || message.size() < size) {
      throw Error(ExitStatus::kSoftware, "read a layout's record: truncated");
    }
    reader.add(message);
    at += static_cast<off_t>(size);
  }
}

}  // namespace fo::gms
