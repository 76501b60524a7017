// "did you mean": suggestions for mistyped words. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fo::cli {

/// "; did you mean 'KNOWN'?" for the nearest known word, the first of several; empty if more than a
/// third of the letters differ from all. Leading dashes are ignored.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace fo::cli
