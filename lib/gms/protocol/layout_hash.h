// The hash of a layout, computed piece by piece: for a server that has others to answer meanwhile.
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
  /// The layout lives longer than this and does not change before finish().
  explicit LayoutHasher(const Layout& layout);

  /// Takes at least so many bytes more, where there are, and not many more than that; false when
  /// all is taken.
  bool step(std::size_t bytes);
  /// What layout_hash() returns. After step() has returned false.
  std::string finish() { return sha256_.finish(); }

 private:
  std::size_t add(std::string_view text);

  const Layout& layout_;
  Sha256 sha256_;
  std::map<std::uint64_t, Allocation>::const_iterator next_allocation_;
  Metadata::const_iterator next_key_;
  std::unordered_map<std::string_view, std::string> rank_of_;
};

}  // namespace fo::gms
