#include "plan/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fo::plan {
namespace {

int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)))); }

}  // namespace

std::string to_digits(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  const int exponent = exponent_of(value);
  const bool is_scientific = exponent < -3 || exponent >= 9;
  int decimals = is_scientific ? digits - 1 : std::max(0, digits - 1 - exponent);
  const double unit = is_scientific ? std::pow(10, exponent) : 1;
  const double scale = std::pow(10, decimals);
  const double rounded = std::round(value / unit * scale) / scale * unit;
  // Rounding can add a digit, as in 10.0 for 9.996.
  if (!is_scientific && exponent_of(rounded) > exponent) decimals = std::max(0, decimals - 1);
  return is_scientific ? fmt::format("{:.{}e}", rounded, decimals)
                       : fmt::format("{:.{}f}", rounded, decimals);
}

}  // namespace fo::plan
