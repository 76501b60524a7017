// The values of a command line's options, and their sources: flags take precedence over the
// environment, then the configuration file, then defaults. CLI11 has another order, reads no file
// for a subcommand, and reports conflicts between an option of the environment and one of the
// command line.
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
  /// The option's long name without dashes.
  std::string name;
  Kind kind = Kind::kOne;
  /// The values in the form of the command line; empty if the option has no value.
  std::vector<std::string> values;
  Origin origin = Origin::kDefault;
  /// The name of the variable or the file.
  std::string source;
  std::string description;
};

/// The variable of an option that has no variable shared by several tools (CLI11's envname):
/// "GMS_LOCK_WARN_AFTER" for the option "warn-after" of gms-lock.
std::string option_variable(const std::string& tool, std::string_view option);

/// The words of a command line before CLI11 reads them, and the resulting values.
class Settings {
 public:
  /// `app` must have all its options declared, and outlive this object.
  Settings(CLI::App& app, std::vector<std::string> words);

  /// Whether --help or --version is given. They take precedence over errors in the other words.
  [[nodiscard]] bool ask_for_help() const;
  [[nodiscard]] bool ask_for_version() const;

  /// Resolves the environment and the configuration file. Throws Error(kConfig) for invalid ones,
  /// the reason why the file cannot be read, or Error(kUsage) if --config has no value or is
  /// repeated.
  void settle();

  /// Whether --print-config is given. If it is, no option is required.
  bool ask_for_themselves();

  /// Returns the words in reverse order, as CLI11 requires.
  [[nodiscard]] std::vector<std::string> reversed() const {
    return {words_.rbegin(), words_.rend()};
  }

  /// Throws Error(kConfig) if `message`, an error of CLI11, is about a value of the file or of a
  /// variable.
  void blame_origin(const std::string& message) const;

  /// All options that a file may set; valid after CLI11 has parsed the words.
  [[nodiscard]] std::vector<Setting> effective() const;

  /// The tool or the subcommand that the words call.
  [[nodiscard]] const CLI::App& app() const { return *app_; }

 private:
  /// An option of the command line, and its value if it takes one.
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
  /// The options of the environment and the file, as words.
  std::vector<std::string> inserted_;
  std::string file_;
  /// The variable of each option that is set by the environment.
  std::map<const CLI::Option*, std::string> variables_;
  /// The source of each option that is not set on the command line.
  std::map<const CLI::Option*, Setting::Origin> origins_;
};

}  // namespace fo::cli
