// Numbers as text, rounded to significant digits. Pure.
#pragma once

#include <string>

namespace fo::plan {

/// `value` with `digits` significant digits (1 to 15); a half is rounded away from zero: "18.3" for
/// 18.25. Numbers below 0.001 and from 1e9 on are in scientific notation: "8.2e-05". Whole numbers
/// below 1e9 are never rounded to a multiple of ten: "3277" even with two digits.
std::string to_digits(double value, int digits);

}  // namespace fo::plan
