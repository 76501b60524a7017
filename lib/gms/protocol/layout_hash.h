// Computes the hash of a layout in steps, so that a server can answer other clients meanwhile.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gms/protocol/layout.h"
#include "gms/protocol/sha256.h"

namespace fo::gms {

class LayoutHasher {
 public:
  /// The layout must outlive this object and not change before finish().
  explicit LayoutHasher(const Layout& layout);

  /// Hashes at least `bytes` more bytes, if there are, and not many more; false when everything is
  /// hashed.
  bool step(std::size_t bytes);
  /// The result of layout_hash(), once step() has returned false.
  LayoutHash finish() { return LayoutHash(sha256_.finish()); }

 private:
  std::size_t add(std::string_view text);

  const Layout& layout_;
  Sha256 sha256_;
  std::map<std::uint64_t, Allocation>::const_iterator next_allocation_;
  Metadata::const_iterator next_key_;
  std::unordered_map<std::string_view, std::string> rank_of_;
};

}  // namespace fo::gms
