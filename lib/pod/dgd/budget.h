// Limits the output of a run: copies for each service and engine multiply the size of the input,
// which has its own limits. Pure.
#pragma once

#include <cstddef>

#include "yaml/node.h"

namespace fo::pod {

class Budget {
 public:
  /// The limits of one run: a million values, 64 MiB.
  Budget() : Budget(std::size_t{1'000'000}, std::size_t{64} << 20) {}
  /// Limits the number of values, and the bytes of keys and scalars.
  Budget(std::size_t values, std::size_t bytes) : values_(values), bytes_(bytes) {}

  /// Subtracts the values and bytes of `node` from the budget. Returns false if they do not fit;
  /// after that, nothing fits any more.
  bool take(const yaml::Node& node);

  [[nodiscard]] bool is_spent() const { return is_spent_; }

 private:
  bool take_text(std::size_t bytes);

  std::size_t values_;
  std::size_t bytes_;
  bool is_spent_ = false;
};

}  // namespace fo::pod
