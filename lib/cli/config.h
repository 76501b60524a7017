// TOML as CLI11's configuration format. Flags beat the environment beats this file.
#pragma once

#include <CLI/App.hpp>
#include <CLI/ConfigFwd.hpp>
#include <istream>
#include <string>
#include <vector>

namespace fo::cli {

class TomlConfig : public CLI::Config {
 public:
  explicit TomlConfig(const CLI::App& app) : app_(&app) {}

  /// Options by their long names; a list gives an option several values. Options whose environment
  /// variable is set are left out, since CLI11 would let the file win. Throws Error(kConfig) with
  /// line and column for what is not TOML, and for tables: no tool has nested options.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

  /// Nothing writes configuration files here.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

 private:
  const CLI::App* app_;
};

}  // namespace fo::cli
