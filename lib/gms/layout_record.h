// A layout written down, so that the server that comes after a crash has the same ids, slots,
// metadata and hash. For the processes of one gms-serve; no format for disks or peers.
#pragma once

#include <string>
#include <string_view>

#include "gms/layout.h"

namespace fo::gms {

struct LayoutRecord {
  Layout layout;
  std::string hash;
  /// Else only sealed.
  bool published = false;
};

std::string encode_record(const Layout& layout, const std::string& hash, bool published);

/// What encode_record did not make throws Error: kProtocol where it is no message, kSoftware where
/// the hash is not the layout's.
LayoutRecord decode_record(std::string_view bytes);

}  // namespace fo::gms
