// Options from a TOML file: a flat table whose keys are long option names.
#pragma once

#include <string>
#include <vector>

namespace fo::cli {

struct ConfigSetting {
  std::string option;
  /// As it would be written on the command line; the elements of a list joined with commas.
  std::string value;
};

/// Reads at most 1 MiB. Throws Error: kNoInput, kNotPermitted … for the file; kConfig, with line
/// and column, for what is not TOML, and for values that no option takes (tables, dates).
std::vector<ConfigSetting> read_config(const std::string& path);

}  // namespace fo::cli
