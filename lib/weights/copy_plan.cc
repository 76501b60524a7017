#include "weights/copy_plan.h"

#include <algorithm>
#include <numeric>

#include "weights/file/weight_file.h"

namespace fo::weights {
namespace {

using base::ByteCount;

// Alignment makes smaller gaps than this; an empty tensor takes one unit of alignment.
constexpr ByteCount kMaxGap = 2 * kTensorAlignment;

// `read_to` is the end of the run in its file.
bool continues(const CopyRun& run, ByteCount read_to, const CopyItem& item, ByteCount chunk) {
  if (run.pieces.size() == kMaxPieces || run.file != item.file || read_to != item.offset ||
      run.to.allocation != item.to.allocation) {
    return false;
  }
  const ByteCount end = run.to.offset + run.span();
  return item.to.offset >= end && item.to.offset - end <= kMaxGap &&
         item.to.offset - run.to.offset + item.size <= chunk;
}

// The maximum size of a run that begins at `offset` in its file. If `chunk` is aligned for direct
// reads, the run ends aligned, so that the next one reads no extra bytes.
ByteCount reach(ByteCount offset, ByteCount chunk) {
  return chunk % kDirectAlignment == 0 ? chunk - offset % kDirectAlignment : chunk;
}

}  // namespace

ByteCount CopyRun::size() const {
  return std::accumulate(pieces.begin(), pieces.end(), ByteCount{0},
                         [](ByteCount sum, const Piece& piece) { return sum + piece.size; });
}

std::vector<CopyRun> plan_runs(std::span<const CopyItem> items, ByteCount chunk) {
  std::vector<CopyRun> runs;
  ByteCount read_to = 0;  // end of the last item
  for (const CopyItem& item : items) {
    if (item.size == 0) continue;
    const bool same_run = !runs.empty() && continues(runs.back(), read_to, item, chunk);
    read_to = item.offset + item.size;
    if (same_run) {
      runs.back().pieces.push_back({item.to.offset - runs.back().to.offset, item.size});
      continue;
    }
    for (ByteCount at = 0; at < item.size;) {
      const ByteCount size = std::min(reach(item.offset + at, chunk), item.size - at);
      runs.push_back(
          {item.file, item.offset + at, {item.to.allocation, item.to.offset + at}, {{0, size}}});
      at += size;
    }
  }
  return runs;
}

}  // namespace fo::weights
