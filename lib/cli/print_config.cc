#include "cli/print_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "cli/config.h"

namespace fo::cli {
namespace {

using nlohmann::json;
using Kind = Setting::Kind;
using Origin = Setting::Origin;

constexpr std::size_t kValueColumns = 40;

// Not "0600", which is a mode, and nothing that may not fit.
bool is_plain_number(const std::string& text) {
  return text.size() < 18 && (text == "0" || !text.starts_with('0')) && base::parse_uint(text);
}

bool is_boolean(const std::string& text) { return text == "true" || text == "false"; }

std::optional<std::string> value_text(const Setting& setting) {
  std::vector<std::string> texts;
  for (const std::string& value : setting.values) {
    const bool is_bare =
        is_plain_number(value) || (setting.kind == Kind::kSwitch && is_boolean(value));
    const auto text = is_bare ? value : toml_string(value);
    if (!text) return std::nullopt;
    texts.push_back(*text);
  }
  if (texts.size() == 1) return texts.front();
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string origin_text(const Setting& setting) {
  switch (setting.origin) {
    case Origin::kFlag:
      return "flag";
    case Origin::kEnvironment:
      return "environment " + setting.source;
    case Origin::kFile:
      // Bare, where it has nothing in it that would end the comment.
      return base::quoted(setting.source) == "'" + setting.source + "'"
                 ? setting.source
                 : base::quoted(setting.source);
    case Origin::kDefault:
      return "default";
  }
  return {};
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
    } else if (setting.kind == Kind::kSwitch && is_boolean(text)) {
      values.push_back(text == "true");
    } else {
      values.push_back(text);
    }
  }
  if (values.empty()) return nullptr;
  return setting.kind == Kind::kSeveral ? values : values.front();
}

json object_of(const Setting& setting) {
  json object{{"value", value_of(setting)}};
  switch (setting.origin) {
    case Origin::kFlag:
      object["from"] = "flag";
      break;
    case Origin::kEnvironment:
      object["from"] = "environment";
      object["variable"] = setting.source;
      break;
    case Origin::kFile:
      object["from"] = "file";
      object["file"] = setting.source;
      break;
    case Origin::kDefault:
      object["from"] = "default";
      break;
  }
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
