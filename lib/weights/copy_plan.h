// Plans reads: bytes that are adjacent in a file, and adjacent or nearly so in an allocation, are
// read in one run. A large item makes several runs, many small items make one. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/strong.h"
#include "weights/pack.h"

namespace fo::weights {

/// Bytes of a file and their destination: a tensor, or a whole allocation.
struct CopyItem {
  /// Index of the file.
  std::size_t file = 0;
  base::ByteCount offset = 0;
  base::ByteCount size = 0;
  Placement to;
};

struct CopyRun {
  struct Piece {
    /// Offset from the run's `to`.
    base::ByteCount at = 0;
    base::ByteCount size = 0;
  };

  std::size_t file = 0;
  base::ByteCount offset = 0;
  Placement to;
  /// Consecutive in the file; ascending, with small gaps, in the allocation. 1 to kMaxPieces
  /// pieces, none empty.
  std::vector<Piece> pieces;

  /// In the file.
  [[nodiscard]] base::ByteCount size() const;
  /// In the allocation, gaps included.
  [[nodiscard]] base::ByteCount span() const { return pieces.back().at + pieces.back().size; }
};

/// Covers every byte of every item once, in the items' order; no run spans more than `chunk` bytes
/// (> 0). A run may write to the gaps between its items in an allocation, which belong to no
/// tensor.
std::vector<CopyRun> plan_runs(std::span<const CopyItem> items, base::ByteCount chunk);

}  // namespace fo::weights
