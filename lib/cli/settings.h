// What the options of a command line are set to, and by whom: flags beat the environment beats the
// configuration file beats defaults. CLI11's own order is another one, it reads no file for a
// subcommand, and it calls an option of the environment in conflict with one of the command line.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fo::cli {

/// An option as --print-config shows it.
struct Setting {
  enum class Kind { kSwitch, kOne, kSeveral };
  enum class Origin { kFlag, kEnvironment, kFile, kDefault };
  /// Its long name without dashes.
  std::string name;
  Kind kind = Kind::kOne;
  /// As they would be written on the command line. Empty: it has no value.
  std::vector<std::string> values;
  Origin origin = Origin::kDefault;
  /// The variable or the file.
  std::string source;
  std::string description;
};

/// "GMS_LOCK_WARN_AFTER" for the option "warn-after" of gms-lock: the variable of an option that
/// has none that tools share (CLI11's envname).
std::string option_variable(const std::string& tool, std::string_view option);

/// The words of a command line before CLI11 takes them, and what came of them afterwards.
class Settings {
 public:
  /// `app` has all its options declared, and outlives this.
  Settings(CLI::App& app, std::vector<std::string> words);

  /// For --help and --version, which win over all that may be wrong with the other words.
  [[nodiscard]] bool ask_for_help() const;
  [[nodiscard]] bool ask_for_version() const;

  /// Makes the environment and the configuration file give way. Throws Error(kConfig) for both, why
  /// the file can't be read, or Error(kUsage) where it is none or more than one.
  void settle();

  /// Is --print-config given? What would be missing to run is not, then.
  bool ask_for_themselves();

  /// CLI11 takes them last first.
  [[nodiscard]] std::vector<std::string> reversed() const {
    return {words_.rbegin(), words_.rend()};
  }

  /// Throws Error(kConfig) when it was the file or a variable that CLI11 complains about.
  void blame_origin(const std::string& message) const;

  /// All options that a file may set. For when CLI11 is done.
  [[nodiscard]] std::vector<Setting> effective() const;

  /// What the words are for: the tool, or one of its subcommands.
  [[nodiscard]] const CLI::App& app() const { return *app_; }

 private:
  /// An option of the command line, and what it is set to where it takes a value.
  struct Given {
    const CLI::Option* option;
    std::optional<std::string> value;
  };

  [[nodiscard]] bool is_given(const CLI::Option& option) const;
  [[nodiscard]] bool has_rival(const CLI::Option& option, bool by_environment) const;
  [[nodiscard]] std::string config_file() const;
  std::size_t read_words();
  bool read_option(const std::string& word);
  [[nodiscard]] std::string variable_of(const CLI::Option& option) const;
  [[nodiscard]] std::string environment_of(const CLI::Option& option) const;
  [[nodiscard]] bool in_environment(const CLI::Option& option) const;
  void settle_environment();
  void settle_file();
  void take(const CLI::Option& option, Setting::Origin origin,
            const std::vector<std::string>& values);
  void insert(const CLI::Option& option, const std::vector<std::string>& values);
  [[nodiscard]] Setting effective(const CLI::Option& option) const;

  std::vector<std::string> words_;
  CLI::App* app_;
  std::string tool_;
  std::vector<Given> given_;
  std::ptrdiff_t insert_at_ = 0;
  /// What the environment and the file say, as words.
  std::vector<std::string> inserted_;
  std::string file_;
  /// The variable of each option that the environment sets.
  std::map<const CLI::Option*, std::string> variables_;
  /// Who set an option, where it is no flag of the command line.
  std::map<const CLI::Option*, Setting::Origin> origins_;
};

}  // namespace fo::cli
