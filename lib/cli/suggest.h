// "did you mean": what somebody may have wanted to type. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fo::cli {

/// "; did you mean 'KNOWN'?" for the known word that is nearest, the first of several; empty where
/// none is near: more than a third of the letters differ. Leading dashes don't count.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace fo::cli
