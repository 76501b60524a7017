#include "cli/config.h"

#include <toml++/toml.h>

#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/error.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;

std::string scalar_text(const toml::node& node, std::string_view key) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (node.is_number() || node.is_boolean()) {
    std::ostringstream out;
    node.visit([&](const auto& value) {
      if constexpr (toml::is_number<decltype(value)> || toml::is_boolean<decltype(value)>) {
        out << std::boolalpha << value.get();
      }
    });
    return out.str();
  }
  throw Error(ExitStatus::kConfig, "read configuration key " + base::quoted(key) +
                                       ": want a string, number, boolean or a list of them");
}

}  // namespace

std::vector<CLI::ConfigItem> TomlConfig::from_config(std::istream& input) const {
  toml::table table;
  try {
    table = toml::parse(input);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw Error(ExitStatus::kConfig, "read configuration, line " + std::to_string(at.line) +
                                         " column " + std::to_string(at.column) + ": " +
                                         std::string(error.description()));
  }
  std::vector<CLI::ConfigItem> found;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const CLI::Option* option = app_->get_option_no_throw("--" + name);
    if (option == nullptr) {
      throw Error(ExitStatus::kConfig,
                  "read configuration key " + base::quoted(name) + ": no such option");
    }
    if (!option->get_envname().empty() && std::getenv(option->get_envname().c_str()) != nullptr) {
      continue;
    }
    CLI::ConfigItem item;
    item.name = name;
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& element : *list) item.inputs.push_back(scalar_text(element, name));
    } else {
      item.inputs.push_back(scalar_text(node, name));
    }
    found.push_back(std::move(item));
  }
  return found;
}

}  // namespace fo::cli
