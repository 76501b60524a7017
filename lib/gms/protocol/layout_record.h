// A serialised layout, so that the server after a crash has the same ids, slots, metadata and hash.
// Only for the processes of one gms-serve; not a format for disks or peers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "gms/protocol/layout.h"

namespace fo::gms {

struct LayoutRecord {
  Layout layout;
  LayoutHash hash;
  /// Otherwise it is only sealed.
  bool published = false;
};

/// Writes a record in parts, so that a server can answer other clients meanwhile.
class RecordWriter {
 public:
  /// The layout must outlive this object and not change.
  RecordWriter(const Layout& layout, LayoutHash hash, bool published);

  /// The next part, a frame of some 100 KiB, or more with a long value. Empty at the end.
  std::string next();

 private:
  const Layout& layout_;
  LayoutHash hash_;
  bool published_;
  bool has_begun_ = false;
  bool has_head_ = false;
  std::map<std::uint64_t, Allocation>::const_iterator next_allocation_;
  Metadata::const_iterator next_key_;
};

/// Reads the messages of the parts in order.
class RecordReader {
 public:
  /// Throws Error(kProtocol) for a message that no record contains.
  void add(std::string_view message);
  /// Throws Error(kSoftware) if the hash does not match the layout, for example because a part is
  /// missing.
  LayoutRecord finish();

 private:
  LayoutRecord record_;
  std::uint64_t next_slot_ = 0;
};

/// The record in this file, from its beginning to its end. Throws what RecordReader throws, and
/// Error(kSoftware) for a truncated file.
LayoutRecord read_record(int fd);

}  // namespace fo::gms
