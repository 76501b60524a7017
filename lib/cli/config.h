// Options from a TOML file: a flat table whose keys are long option names.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fo::cli {

struct ConfigSetting {
  std::string option;
  /// As they would be written on the command line: one, or the elements of a list.
  std::vector<std::string> values;
};

/// Reads at most 1 MiB. Throws Error: kNoInput, kNotPermitted … for the file; kConfig, with line
/// and column, for what is not TOML, and for values that no option takes (tables, dates).
std::vector<ConfigSetting> read_config(const std::string& path);

/// `text` as such a file has a string, quotes included; nullopt for what is not UTF-8.
std::optional<std::string> toml_string(const std::string& text);

}  // namespace fo::cli
