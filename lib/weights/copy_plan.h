// What is read in one go: bytes that lie together in a file and come to lie together, or nearly so,
// in an allocation. A large item makes many runs, many small ones make one. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/strong.h"
#include "weights/pack.h"

namespace fo::weights {

/// Bytes of a file, and where they belong: a tensor, or the whole of an allocation.
struct CopyItem {
  /// Which of the files.
  std::size_t file = 0;
  base::ByteCount offset = 0;
  base::ByteCount size = 0;
  Placement to;
};

struct CopyRun {
  struct Piece {
    /// From the run's `to` on.
    base::ByteCount at = 0;
    base::ByteCount size = 0;
  };

  std::size_t file = 0;
  base::ByteCount offset = 0;
  Placement to;
  /// One after the other in the file; ascending, with small gaps, in the allocation. At least one,
  /// none empty, at most kMaxPieces.
  std::vector<Piece> pieces;

  /// In the file.
  [[nodiscard]] base::ByteCount size() const;
  /// In the allocation, gaps included.
  [[nodiscard]] base::ByteCount span() const { return pieces.back().at + pieces.back().size; }
};

/// Every byte of every item once, in the items' order; no run spans more than `chunk` bytes (> 0).
/// Where items follow each other, what is between them in an allocation belongs to nobody: a run
/// may write there.
std::vector<CopyRun> plan_runs(std::span<const CopyItem> items, base::ByteCount chunk);

}  // namespace fo::weights
