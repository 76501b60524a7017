#include "cli/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <sstream>
#include <string_view>

#include "base/error.h"
#include "base/strong.h"
#include "base/text.h"
#include "os/file.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;

[[noreturn]] void fail(const std::string& path, const toml::source_position& at,
                       const std::string& reason) {
  throw Error(ExitStatus::kConfig, "read configuration " + base::quoted(path) + ": line " +
                                       std::to_string(at.line) + ", column " +
                                       std::to_string(at.column) + ": " + reason);
}

std::string scalar_text(const toml::node& node, std::string_view key, const std::string& path) {
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
  fail(path, node.source().begin,
       "key " + base::quoted(key) + ": expected a string, number, boolean or a list of them");
}

}  // namespace

std::vector<ConfigSetting> read_config(const std::string& path) {
  const std::string text = os::read_file(path, base::kMiB);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(path, error.source().begin, std::string(error.description()));
  }
  std::vector<ConfigSetting> settings;
  for (const auto& [key, node] : table) {
    ConfigSetting setting{std::string(key.str()), {}};
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& element : *list) {
        setting.values.push_back(scalar_text(element, setting.option, path));
      }
    } else {
      setting.values.push_back(scalar_text(node, setting.option, path));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::optional<std::string> toml_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (base::is_control(c)) {
      quoted += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  quoted += '"';
  try {
    static_cast<void>(toml::parse("text = " + quoted));
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
  return quoted;
}

}  // namespace fo::cli
