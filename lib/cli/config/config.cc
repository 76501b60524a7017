#include "cli/config/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/strong.h"
#include "base/text.h"
#include "json/object.h"
#include "os/file/file.h"
#include "os/file/input.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw Error(ExitStatus::kConfig, "read configuration " + base::quoted(path) + ": " + reason);
}

[[noreturn]] void fail(const std::string& path, const toml::source_position& at,
                       const std::string& reason) {
  fail(path, fmt::format("line {}, column {}: {}", at.line, at.column, reason));
}

std::string unfit(std::string_view key) {
  return "key " + base::quoted(key) + ": expected a string, number, boolean or a list of them";
}

std::string scalar_text(const toml::node& node, std::string_view key, const std::string& path) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (node.is_number() || node.is_boolean()) {
    std::string text;
    node.visit([&](const auto& value) {
      if constexpr (toml::is_number<decltype(value)> || toml::is_boolean<decltype(value)>) {
        text = fmt::format("{}", value.get());
      }
    });
    return text;
  }
  fail(path, node.source().begin, unfit(key));
}

std::string scalar_text(const nlohmann::json& value, std::string_view key,
                        const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number() && !value.is_boolean()) fail(path, unfit(key));
  return value.dump();
}

std::vector<ConfigSetting> read_json(const std::string& text, const std::string& path) {
  std::vector<ConfigSetting> settings;
  try {
    const nlohmann::json object = json::parse_object(text, base::kMiB);
    for (const auto& [key, value] : object.items()) {
      ConfigSetting setting{key, {}};
      if (value.is_array()) {
        for (const nlohmann::json& element : value) {
          setting.values.push_back(scalar_text(element, key, path));
        }
      } else {
        setting.values.push_back(scalar_text(value, key, path));
      }
      settings.push_back(std::move(setting));
    }
  } catch (const json::Misfit& misfit) {
    fail(path, misfit.what());
  }
  return settings;
}

std::vector<ConfigSetting> read_toml(const std::string& text, const std::string& path) {
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

}  // namespace

std::vector<ConfigSetting> read_config(const std::string& path) {
  const std::string text = os::read_input(path, base::kMiB);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  return is_json ? read_json(text, path) : read_toml(text, path);
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
