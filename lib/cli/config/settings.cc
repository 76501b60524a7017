#include "cli/config/settings.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cli/config/config.h"
#include "os/process/exec.h"
#include "text/nearest_name.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;
using Kind = Setting::Kind;
using Origin = Setting::Origin;

// About a day. A duration of it does not overflow.
constexpr std::uint64_t kMaxMilliseconds = 100'000'000;

Kind kind_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return Kind::kSwitch;
  const bool repeats = option.get_items_expected_max() > 1 ||
                       option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return repeats ? Kind::kSeveral : Kind::kOne;
}

bool is_switched_off(const CLI::Option& option, const std::vector<std::string>& values) {
  return kind_of(option) == Kind::kSwitch && values.size() == 1 &&
         (values.front() == "false" || values.front() == "0");
}

[[noreturn]] void refuse(const std::string& file, const std::string& reason) {
  throw Error(ExitStatus::kConfig, "read configuration " + base::quoted(file) + ": " + reason);
}

// Whether the variable's value is a number of milliseconds; its option takes a duration.
bool is_in_milliseconds(const std::string& variable) { return variable.ends_with("_MS"); }

// Whether Kubernetes has set the variable, as it does for each Service:
// NAME_PORT=tcp://10.0.0.1:80.
bool is_service_link(const std::string& variable, std::string_view value) {
  return variable.ends_with("_PORT") && value.find("://") != std::string_view::npos;
}

std::string duration_from_environment(const std::string& variable, const std::string& text) {
  const auto value = base::parse_uint(text);
  if (!value || *value > kMaxMilliseconds) {
    throw Error(ExitStatus::kConfig,
                "read " + variable + " " + base::quoted(text) + ": not a number of milliseconds");
  }
  return std::to_string(*value) + "ms";
}

}  // namespace

std::string option_variable(const std::string& tool, std::string_view option) {
  std::string variable = tool + "_" + std::string(option);
  std::replace(variable.begin(), variable.end(), '-', '_');
  std::transform(variable.begin(), variable.end(), variable.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return variable;
}

Settings::Settings(CLI::App& app, std::vector<std::string> words)
    : words_(std::move(words)), app_(&app), tool_(app.get_name()) {
  const std::size_t at = read_words();
  if (at == words_.size()) return;
  const auto named = [&](const CLI::App* sub) { return sub->check_name(words_[at]); };
  for (CLI::App* sub : app.get_subcommands(named)) {
    app_ = sub;
    insert_at_ = static_cast<std::ptrdiff_t>(at) + 1;
  }
  read_words();
  // CLI11 also reads the environment of subcommands that were not called, and their options may be
  // bound to the same variables.
  std::vector<CLI::App*> others = app.get_subcommands({});
  others.push_back(&app);
  for (CLI::App* other : others) {
    if (other == app_) continue;
    for (CLI::Option* option : other->get_options()) option->envname("");
  }
}

// Finds the given options as CLI11 will, and returns the index of the first word that is neither an
// option nor its value.
std::size_t Settings::read_words() {
  given_.clear();
  std::size_t first = words_.size();
  for (std::size_t i = 0; i < words_.size() && words_[i] != "--"; ++i) {
    const std::string& word = words_[i];
    if (!word.starts_with('-')) {
      first = std::min(first, i);
      continue;
    }
    if (read_option(word) && i + 1 < words_.size()) given_.back().value = words_[++i];
  }
  return first;
}

// Reads the options of one word. Returns true if the next word is the value of the last of them.
bool Settings::read_option(const std::string& word) {
  if (word.starts_with("--")) {
    const std::size_t sign = word.find('=');
    const CLI::Option* option = app_->get_option_no_throw(word.substr(0, sign));
    if (option == nullptr) return false;
    given_.push_back({option, std::nullopt});
    if (sign == std::string::npos) return option->get_items_expected_min() > 0;
    given_.back().value = word.substr(sign + 1);
    return false;
  }
  for (std::size_t i = 1; i < word.size(); ++i) {
    const CLI::Option* option = app_->get_option_no_throw({'-', word[i]});
    if (option == nullptr) return false;
    given_.push_back({option, std::nullopt});
    if (option->get_items_expected_max() == 0) continue;
    // The rest of the word is a value, not a cluster of letters.
    if (i + 1 == word.size()) return option->get_items_expected_min() > 0;
    given_.back().value = word.substr(i + 1);
    return false;
  }
  return false;
}

bool Settings::ask_for_help() const { return is_given(*app_->get_help_ptr()); }

bool Settings::ask_for_version() const { return is_given(*app_->get_version_ptr()); }

void Settings::settle() {
  settle_environment();
  settle_file();
  words_.insert(words_.begin() + insert_at_, inserted_.begin(), inserted_.end());
}

std::string Settings::variable_of(const CLI::Option& option) const {
  if (!option.get_envname().empty()) return option.get_envname();
  const bool has_one = option.get_configurable() && option.nonpositional();
  return has_one ? option_variable(tool_, option.get_lnames().front()) : std::string();
}

// The value of the option's variable; empty if it is not set, or if the option has no variable.
std::string Settings::environment_of(const CLI::Option& option) const {
  const std::string variable = variable_of(option);
  const std::string value = os::variable(variable.c_str());
  return is_service_link(variable, value) ? std::string() : value;
}

bool Settings::in_environment(const CLI::Option& option) const {
  return variables_.contains(&option);
}

void Settings::settle_environment() {
  for (CLI::Option* option : app_->get_options()) {
    const std::string variable = variable_of(*option);
    const std::string value = environment_of(*option);
    // CLI11 must not read the variable: its value becomes one of the words.
    option->envname("");
    if (value.empty()) continue;
    variables_.insert_or_assign(option, variable);
    if (is_given(*option) || has_rival(*option, false)) continue;
    take(*option, Origin::kEnvironment,
         {is_in_milliseconds(variable) ? duration_from_environment(variable, value) : value});
  }
}

void Settings::settle_file() {
  file_ = config_file();
  if (file_.empty()) return;
  for (const ConfigSetting& setting : read_config(file_)) {
    const CLI::Option* option = app_->get_option_no_throw("--" + setting.option);
    if (option == nullptr || !option->get_configurable()) {
      std::vector<std::string> known;
      for (const CLI::Option* one : app_->get_options()) {
        if (one->get_configurable() && !one->get_lnames().empty()) {
          known.push_back(one->get_lnames().front());
        }
      }
      refuse(file_, "key " + base::quoted(setting.option) + ": no such option" +
                        text::did_you_mean(setting.option, {known.begin(), known.end()}));
    }
    if (is_given(*option) || in_environment(*option) || has_rival(*option, true)) continue;
    if (setting.values.empty()) {
      if (kind_of(*option) == Kind::kSeveral) continue;
      refuse(file_, setting.option + ": needs a value");
    }
    take(*option, Origin::kFile, setting.values);
  }
}

void Settings::take(const CLI::Option& option, Setting::Origin origin,
                    const std::vector<std::string>& values) {
  origins_[&option] = origin;
  // Setting an option to its current value never conflicts with another one.
  if (is_switched_off(option, values)) return;
  const std::string preset = option.get_default_str();
  if (!preset.empty() && CLI::detail::join(values) == preset) return;
  insert(option, values);
}

// A required value becomes a separate word, because for an empty value "--name=" would take the
// next word. A value that begins with "-" follows "=", because CLI11 would read it as an option.
void Settings::insert(const CLI::Option& option, const std::vector<std::string>& values) {
  const std::string name = "--" + option.get_lnames().front();
  const Kind kind = kind_of(option);
  const auto insert_one = [&](const std::string& value) {
    if (option.get_items_expected_min() == 0 || value.starts_with('-')) {
      inserted_.push_back(name + "=" + value);
    } else {
      inserted_.push_back(name);
      inserted_.push_back(value);
    }
  };
  if (kind != Kind::kSeveral) return insert_one(CLI::detail::join(values));
  for (const std::string& value : values) insert_one(value);
}

bool Settings::ask_for_themselves() {
  const CLI::Option* option = app_->get_option_no_throw("--print-config");
  if (option == nullptr || !is_given(*option)) return false;
  for (CLI::Option* other : app_->get_options()) other->required(false);
  return true;
}

void Settings::blame_origin(const std::string& message) const {
  constexpr std::string_view kNoValue = "Could not convert: ";
  if (message.starts_with(kNoValue)) {
    // "--name = value"
    const std::size_t sign = std::min(message.find(" = "), message.size());
    const std::string name = message.substr(kNoValue.size(), sign - kNoValue.size());
    return blame_origin(name + ": invalid value" + message.substr(sign));
  }
  for (const auto& [option, origin] : origins_) {
    const std::string name = "--" + option->get_lnames().front();
    const bool is_value = message.starts_with(name + ": ");
    if (!is_value && !message.starts_with(name + " ")) continue;
    if (origin == Origin::kFile) refuse(file_, message.substr(2));
    if (!is_value) continue;
    throw Error(ExitStatus::kConfig, "read " + variables_.at(option) + message.substr(name.size()));
  }
}

std::vector<Setting> Settings::effective() const {
  std::vector<Setting> settings;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_configurable() && option->nonpositional()) {
      settings.push_back(effective(*option));
    }
  }
  return settings;
}

Setting Settings::effective(const CLI::Option& option) const {
  Setting setting;
  setting.name = option.get_lnames().front();
  setting.kind = kind_of(option);
  setting.values = option.results();
  setting.description = option.get_description();
  if (const auto found = origins_.find(&option); found != origins_.end()) {
    setting.origin = found->second;
    setting.source = found->second == Origin::kFile ? file_ : variables_.at(&option);
  } else if (option.count() > 0) {
    setting.origin = Origin::kFlag;
  }
  if (setting.kind == Kind::kSwitch && setting.values.size() > 1) {
    setting.values = {std::to_string(setting.values.size())};
  }
  if (!setting.values.empty()) return setting;
  if (setting.kind == Kind::kSwitch) {
    setting.values = {"false"};
  } else if (!option.get_default_str().empty()) {
    setting.values = {option.get_default_str()};
  }
  return setting;
}

bool Settings::is_given(const CLI::Option& option) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const Given& given) { return given.option == &option; });
}

// Whether an option that excludes this one is set.
bool Settings::has_rival(const CLI::Option& option, bool by_environment) const {
  const auto& rivals = option.get_excludes();
  return std::any_of(rivals.begin(), rivals.end(), [&](const CLI::Option* rival) {
    return is_given(*rival) || (by_environment && in_environment(*rival));
  });
}

std::string Settings::config_file() const {
  std::string file;
  for (const Given& given : given_) {
    // CLI11 reports a missing value.
    if (!given.option->check_lname("config") || !given.value) continue;
    if (!file.empty()) throw Error(ExitStatus::kUsage, "--config: only one file can be read");
    if (given.value->empty()) throw Error(ExitStatus::kUsage, "--config: needs a file");
    file = *given.value;
  }
  if (!file.empty()) return file;
  return os::variable(option_variable(tool_, "config").c_str());
}

}  // namespace fo::cli
