// Options from a TOML or JSON file: a flat table or object whose keys are long option names.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fo::cli {

struct ConfigSetting {
  std::string option;
  /// The values in the form of the command line: one value, or the elements of a list.
  std::vector<std::string> values;
};

/// Reads at most 1 MiB; "-" is standard input. A text that begins with "{" is JSON: no TOML file
/// begins with it. Throws Error: kNoInput, kNotPermitted … for the file; kConfig for an invalid
/// text, and for values that no option takes (tables, dates); for TOML with line and column.
std::vector<ConfigSetting> read_config(const std::string& path);

/// `text` as a TOML string, including the quotes; nullopt if it is not UTF-8.
std::optional<std::string> toml_string(const std::string& text);

}  // namespace fo::cli
