// Environment variables that a tool reads and that no option stands for: named in --help and in
// what --print-config prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace fo::cli {

/// Names variables that `app` reads; "GMS_SIM_*" for all that begin so. A subcommand that is added
/// later has them, too.
void add_variables(CLI::App& app, const std::vector<std::string>& names);

/// As they were named.
std::vector<std::string> variables_of(const CLI::App& app);

struct Variable {
  std::string name;
  std::string value;
};
/// Those of them that are set and not empty.
std::vector<Variable> set_variables(const CLI::App& app);

}  // namespace fo::cli
