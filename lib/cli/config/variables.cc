#include "cli/config/variables.h"

#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

namespace fo::cli {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return name == pattern;
  pattern.remove_suffix(1);
  return name.starts_with(pattern);
}

}  // namespace

// The names are stored in the footer, because CLI11 has no other place for them.
void add_variables(CLI::App& app, const std::vector<std::string>& names) {
  std::vector<std::string> all = variables_of(app);
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  }
  app.footer(CLI::detail::join(all, " "));
}

std::vector<std::string> variables_of(const CLI::App& app) {
  std::istringstream words(app.get_footer());
  std::vector<std::string> names;
  for (std::string name; words >> name;) names.push_back(name);
  return names;
}

std::vector<Variable> set_variables(const CLI::App& app) {
  const std::vector<std::string> patterns = variables_of(app);
  std::vector<Variable> found;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t sign = text.find('=');
    if (sign == std::string_view::npos || sign + 1 == text.size()) continue;
    const std::string_view name = text.substr(0, sign);
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& pattern) { return matches(pattern, name); })) {
      found.push_back({std::string(name), std::string(text.substr(sign + 1))});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return found;
}

}  // namespace fo::cli
