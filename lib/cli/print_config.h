// What --print-config prints. Pure, apart from toml++ looking at it.
#pragma once

#include <string>
#include <vector>

#include "cli/settings.h"
#include "cli/variables.h"

namespace fo::cli {

/// A line for each option, `name = value  # where from`, that --config reads back; options without
/// a value, and what no file can say, are comments. The variables follow, as comments.
std::string to_toml(const std::vector<Setting>& settings, const std::vector<Variable>& variables);

/// {"options":{NAME:{"value":...,"from":"flag"|"environment"|"file"|"default"}},"environment":{}};
/// "variable" or "file" says which. A value is null, a string, a number where it reads as one, true
/// or false for a flag, or, for an option that may be repeated, a list of these.
std::string to_json(const std::vector<Setting>& settings, const std::vector<Variable>& variables);

}  // namespace fo::cli
