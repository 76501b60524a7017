// Options from a TOML file: a flat table whose keys are long option names.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fo::cli {

struct ConfigSetting {
  std::string option;
  /// As on the command line: one value, or the elements of a list.
  std::vector<std::string> values;
};

/// Reads at most 1 MiB. Throws Error: kNoInput, kNotPermitted … for the file; kConfig, with line
/// and column, for invalid TOML and for values that no option takes (tables, dates).
std::vector<ConfigSetting> read_config(const std::string& path);

/// `text` as a TOML string, including the quotes; nullopt if it is not UTF-8.
std::optional<std::string> toml_string(const std::string& text);

}  // namespace fo::cli
