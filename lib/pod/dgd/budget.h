// How much may be made of an input that is within its own limits: what is copied for each service
// and each engine multiplies it. Pure.
#pragma once

#include <cstddef>

#include "yaml/node.h"

namespace fo::pod {

class Budget {
 public:
  /// Of all that one run generates.
  Budget() : Budget(std::size_t{1'000'000}, std::size_t{64} << 20) {}
  /// Values, and bytes of keys and scalars.
  Budget(std::size_t values, std::size_t bytes) : values_(values), bytes_(bytes) {}

  /// Whether `node` is within what is left, which then is less. Once something was not, nothing is.
  bool take(const yaml::Node& node);

  [[nodiscard]] bool is_spent() const { return is_spent_; }

 private:
  bool take_text(std::size_t bytes);

  std::size_t values_;
  std::size_t bytes_;
  bool is_spent_ = false;
};

}  // namespace fo::pod
