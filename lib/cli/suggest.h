// "did you mean": suggestions for mistyped words. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fo::cli {

/// "; did you mean 'KNOWN'?" for the text::nearest_name() of the known words; empty if there is
/// none.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace fo::cli
