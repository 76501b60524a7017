// Environment variables that a tool reads and that have no option: --help and --print-config list
// them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace fo::cli {

/// Adds variables that `app` reads; "GMS_SIM_*" stands for all with that prefix. Subcommands that
/// are added later inherit them.
void add_variables(CLI::App& app, const std::vector<std::string>& names);

/// The names given to add_variables(), each once.
std::vector<std::string> variables_of(const CLI::App& app);

struct Variable {
  std::string name;
  std::string value;
};
/// The variables that are set and not empty.
std::vector<Variable> set_variables(const CLI::App& app);

}  // namespace fo::cli
