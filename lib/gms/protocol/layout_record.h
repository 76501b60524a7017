// A layout written down, so that the server that comes after a crash has the same ids, slots,
// metadata and hash. For the processes of one gms-serve; no format for disks or peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "gms/protocol/layout.h"

namespace fo::gms {

struct LayoutRecord {
  Layout layout;
  std::string hash;
  /// Else only sealed.
  bool published = false;
};

/// Writes a record part by part, for a server that has others to answer meanwhile.
class RecordWriter {
 public:
  /// The layout lives longer than this and does not change meanwhile.
  RecordWriter(const Layout& layout, std::string hash, bool published);

  /// The next part, a frame, to be written after the one before: some 100 KiB, and with one long
  /// value more. Empty when there is no more.
  std::string next();

 private:
  const Layout& layout_;
  std::string hash_;
  bool published_;
  bool has_begun_ = false;
  bool has_head_ = false;
  std::map<std::uint64_t, Allocation>::const_iterator next_allocation_;
  Metadata::const_iterator next_key_;
};

/// Takes the messages that are in the parts, in their order.
class RecordReader {
 public:
  /// Throws Error(kProtocol) for what is in no record.
  void add(std::string_view message);
  /// Throws Error(kSoftware) where the hash is not the layout's, as when a part is missing.
  LayoutRecord finish();

 private:
  LayoutRecord record_;
  std::uint64_t next_slot_ = 0;
};

/// The record that this file holds, from its beginning to its end. Throws what RecordReader throws;
/// Error(kSoftware) for a file that is cut off.
LayoutRecord read_record(int fd);

}  // namespace fo::gms
