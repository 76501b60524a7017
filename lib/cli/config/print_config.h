// The output of --print-config. Pure, apart from the use of toml++.
#pragma once

#include <string>
#include <vector>

#include "cli/config/settings.h"
#include "cli/config/variables.h"

namespace fo::cli {

/// A line for each option, `name = value  # source`, which --config reads back; options without a
/// value, and values that a file cannot have, are comments. The variables follow, as comments.
std::string to_toml(const std::vector<Setting>& settings, const std::vector<Variable>& variables);

/// {"options":{NAME:{"value":...,"from":"flag"|"environment"|"file"|"default"}},"environment":{}};
/// "variable" or "file" names the source. A value is null, a string, a number if it reads as one,
/// true or false for a flag, or a list of these for a repeatable option.
std::string to_json(const std::vector<Setting>& settings, const std::vector<Variable>& variables);

}  // namespace fo::cli
