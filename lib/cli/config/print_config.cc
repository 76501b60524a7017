#include "cli/config/print_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "cli/config/config.h"

namespace fo::cli {
namespace {

using nlohmann::json;
using Kind = Setting::Kind;
using Origin = Setting::Origin;

constexpr std::size_t kValueColumns = 40;

// Whether the text can be written as a number. "0600", which is a mode, and numbers that may not
// fit are excluded.
bool is_plain_number(const std::string& text) {
  return text.size() < 18 && (text == "0" || !text.starts_with('0')) && base::parse_uint(text);
}

bool is_boolean(const Setting& setting, const std::string& text) {
  return setting.kind == Kind::kSwitch && (text == "true" || text == "false");
}

std::optional<std::string> value_text(const Setting& setting) {
  std::vector<std::string> texts;
  for (const std::string& value : setting.values) {
    const bool is_bare = is_plain_number(value) || is_boolean(setting, value);
    const auto text = is_bare ? value : toml_string(value);
    if (!text) return std::nullopt;
    texts.push_back(*text);
  }
  if (texts.size() == 1) return texts.front();
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::kFlag:
      return "flag";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kFile:
      return "file";
    case Origin::kDefault:
      break;
  }
  return "default";
}

std::string origin_text(const Setting& setting) {
  const std::string quoted = base::quoted(setting.source);
  // The source has no quotes, unless it contains a character that would end the comment.
  const bool is_bare = quoted == "'" + setting.source + "'";
  if (setting.origin == Origin::kFile) return is_bare ? setting.source : quoted;
  const std::string name = name_of(setting.origin);
  return setting.origin == Origin::kEnvironment ? name + " " + setting.source : name;
}

std::string line_of(const Setting& setting) {
  if (setting.values.empty()) {
    return fmt::format("# {}: {}\n", setting.name, setting.description);
  }
  const auto value = value_text(setting);
  const std::string text =
      fmt::format("{}{} = {}", value ? "" : "# ", setting.name,
                  value ? *value : base::quoted(setting.values.front()) + ", which is not UTF-8");
  return fmt::format("{:<{}}  # {}\n", text, kValueColumns, origin_text(setting));
}

json value_of(const Setting& setting) {
  json values = json::array();
  for (const std::string& text : setting.values) {
    if (is_plain_number(text)) {
      values.push_back(std::stoull(text));
    } else if (is_boolean(setting, text)) {
      values.push_back(text == "true");
    } else {
      values.push_back(text);
    }
  }
  if (values.empty()) return nullptr;
  return setting.kind == Kind::kSeveral ? values : values.front();
}

json object_of(const Setting& setting) {
  json object{{"value", value_of(setting)}, {"from", name_of(setting.origin)}};
  if (setting.origin == Origin::kEnvironment) object["variable"] = setting.source;
  if (setting.origin == Origin::kFile) object["file"] = setting.source;
  return object;
}

}  // namespace

std::string to_toml(const std::vector<Setting>& settings, const std::vector<Variable>& variables) {
  std::string text;
  for (const Setting& setting : settings) text += line_of(setting);
  for (const Variable& variable : variables) {
    text += fmt::format("{:<{}}  # environment\n",
                        fmt::format("# {}={}", variable.name, base::quoted(variable.value)),
                        kValueColumns);
  }
  return text;
}

std::string to_json(const std::vector<Setting>& settings, const std::vector<Variable>& variables) {
  json options = json::object();
  for (const Setting& setting : settings) options[setting.name] = object_of(setting);
  json environment = json::object();
  for (const Variable& variable : variables) environment[variable.name] = variable.value;
  const json all{{"options", std::move(options)}, {"environment", std::move(environment)}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace fo::cli
