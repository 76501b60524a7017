#include "cli/app.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "base/error.h"
#include "cli/config.h"
#include "cli/output.h"
#include "os/log.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;

// Not only by one of its subcommands.
bool runs_itself(const CLI::App& app) {
  return app.get_subcommands({}).empty() || app.get_require_subcommand_min() == 0;
}

// Names and kinds of values on the left; what they mean, default and environment on the right.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(bool takes_command) : takes_command_(takes_command) { column_width(30); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    // CLI11 knows nothing of the command after "--".
    if (takes_command_ && runs_itself(*app)) {
      usage.insert(usage.find_last_not_of('\n') + 1, " [-- COMMAND [ARG]...]");
    }
    return usage;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    // Without the range that a validator adds: it is told when it is missed.
    const std::string type = option->get_type_name();
    return " " + type.substr(0, type.find(":INT in ["));
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string notes;
    if (option->get_required()) notes = "required";
    const std::string value = option->get_type_size() == 0 ? "" : option->get_default_str();
    if (!value.empty()) notes = "default: " + value;
    if (!option->get_envname().empty()) {
      notes += (notes.empty() ? "env: " : ", env: ") + option->get_envname();
    }
    return option->get_description() + (notes.empty() ? "" : " (" + notes + ")");
  }

 private:
  bool takes_command_;
};

// Every app and subcommand that does something gets the common options, after its own, and --help
// and --version last.
void add_common(CLI::App& app, const Tool& tool, CommonOptions& common) {
  for (CLI::App* sub : app.get_subcommands({})) add_common(*sub, tool, common);
  if (runs_itself(app)) {
    app.add_flag("--json", common.json, "print JSON instead of text");
    app.add_flag("-v,--verbose", common.verbose, "say more on stderr (twice: debug)");
    app.add_flag("-q,--quiet", common.quiet, "say nothing on stderr but errors");
    // Read before CLI11 sees the words: see Words.
    app.add_option_function<std::string>(
           "--config", [](const std::string&) {}, "read options from this TOML file")
        ->type_name("FILE");
  }
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", tool.name + " " + tool.version, "print the version and exit");
}

// The words of a command line before CLI11 takes them: flags beat the environment beats the
// configuration file. CLI11's own order is another one, it reads no file for a subcommand, and it
// calls an option of the environment in conflict with one of the command line.
class Words {
 public:
  Words(CLI::App& app, std::vector<std::string> words) : words_(std::move(words)), app_(&app) {
    const auto at = std::find_if(words_.begin(), words_.end(),
                                 [](const std::string& word) { return !word.starts_with('-'); });
    if (at == words_.end()) return;
    const auto named = [&](const CLI::App* sub) { return sub->check_name(*at); };
    for (CLI::App* sub : app.get_subcommands(named)) {
      app_ = sub;
      insert_at_ = at - words_.begin() + 1;
    }
    // CLI11 reads the environment for what nobody asked for, too, and what those options are bound
    // to may be shared.
    std::vector<CLI::App*> others = app.get_subcommands({});
    others.push_back(&app);
    for (CLI::App* other : others) {
      if (other == app_) continue;
      for (CLI::Option* option : other->get_options()) option->envname("");
    }
  }

  /// Makes the environment and the configuration file give way. Throws Error(kConfig) for the file.
  void settle() {
    for (CLI::Option* option : app_->get_options()) {
      if (in_environment(*option) && has_rival(*option, false)) option->envname("");
    }
    if (is_given(*app_->get_help_ptr()) || is_given(*app_->get_version_ptr())) return;
    file_ = config_file();
    if (file_.empty()) return;
    for (const ConfigSetting& setting : read_config(file_)) {
      const CLI::Option* option = app_->get_option_no_throw("--" + setting.option);
      if (option == nullptr || setting.option == "config") {
        throw Error(ExitStatus::kConfig, "read configuration " + base::quoted(file_) + ": key " +
                                             base::quoted(setting.option) + ": no such option");
      }
      if (is_given(*option) || in_environment(*option) || has_rival(*option, true)) continue;
      from_file_.push_back("--" + setting.option);
      words_.insert(words_.begin() + insert_at_, from_file_.back() + "=" + setting.value);
    }
  }

  /// CLI11 takes them last first.
  [[nodiscard]] std::vector<std::string> reversed() const {
    return {words_.rbegin(), words_.rend()};
  }

  /// Throws Error(kConfig) when it was the file that CLI11 complains about.
  void blame_file(const std::string& message) const {
    for (const std::string& name : from_file_) {
      if (message.starts_with(name + ":") || message.starts_with(name + " ")) {
        throw Error(ExitStatus::kConfig,
                    "read configuration " + base::quoted(file_) + ": " + message.substr(2));
      }
    }
  }

 private:
  static bool in_environment(const CLI::Option& option) {
    if (option.get_envname().empty()) return false;
    const char* value = std::getenv(option.get_envname().c_str());
    return value != nullptr && *value != '\0';
  }

  [[nodiscard]] bool is_given(const CLI::Option& option) const {
    for (const std::string& word : words_) {
      if (word == "--") return false;
      if (word.starts_with("--")) {
        if (option.check_lname(word.substr(2, word.find('=') - 2))) return true;
      } else if (word.starts_with('-')) {
        for (const char c : word.substr(1)) {
          if (option.check_sname(std::string(1, c))) return true;
        }
      }
    }
    return false;
  }

  // Is an option set that must not be set together with this one?
  [[nodiscard]] bool has_rival(const CLI::Option& option, bool by_environment) const {
    const auto& rivals = option.get_excludes();
    return std::any_of(rivals.begin(), rivals.end(), [&](const CLI::Option* rival) {
      return is_given(*rival) || (by_environment && in_environment(*rival));
    });
  }

  [[nodiscard]] std::string config_file() const {
    constexpr std::string_view kName = "--config";
    for (std::size_t i = 0; i < words_.size() && words_[i] != "--"; ++i) {
      if (words_[i].starts_with("--config=")) return words_[i].substr(kName.size() + 1);
      if (words_[i] == kName && i + 1 < words_.size()) return words_[i + 1];
    }
    return {};
  }

  std::vector<std::string> words_;
  CLI::App* app_;
  std::ptrdiff_t insert_at_ = 0;
  std::string file_;
  std::vector<std::string> from_file_;
};

// A descriptor that was closed when we started would go to the next file or socket, and what is
// meant for stdout would be written there. These fail every read and write with EBADF instead.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free: fd
    }
  }
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

CLI::App* parsed_app(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return at;
}

os::LogLevel threshold(const Tool& tool, const CommonOptions& common) {
  if (common.quiet) return os::LogLevel::kError;
  const int base = static_cast<int>(tool.is_daemon ? os::LogLevel::kInfo : os::LogLevel::kWarning);
  return static_cast<os::LogLevel>(
      std::min(base + common.verbose, static_cast<int>(os::LogLevel::kDebug)));
}

int report(const Tool& tool, const std::string& message, ExitStatus status) {
  os::log_line(os::LogLevel::kError, message);
  if (status == ExitStatus::kUsage) {
    std::fprintf(stderr, "Try '%s --help'\n", tool.name.c_str());
  }
  return base::to_int(status);
}

}  // namespace

ParseResult parse(const Tool& tool, CommonOptions& common, const Declare& declare,
                  const std::vector<std::string>& arguments) {
  std::vector<std::string> own = arguments;
  if (tool.takes_command) {
    const auto split = std::find(own.begin(), own.end(), "--");
    if (split != own.end()) {
      common.command.assign(split + 1, own.end());
      own.erase(split, own.end());
      if (common.command.empty()) {
        return {ParseResult::Kind::kUsageError, "no command after '--'"};
      }
    }
  }
  CLI::App app(tool.summary, tool.name);
  app.formatter(std::make_shared<HelpFormatter>(tool.takes_command));
  declare(app);
  add_common(app, tool, common);
  Words words(app, std::move(own));
  words.settle();
  try {
    app.parse(words.reversed());
  } catch (const CLI::CallForHelp&) {
    const CLI::App* asked = parsed_app(app);
    return {ParseResult::Kind::kPrint, asked->help(asked == &app ? "" : tool.name)};
  } catch (const CLI::CallForAllHelp&) {
    return {ParseResult::Kind::kPrint, app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion&) {
    return {ParseResult::Kind::kPrint, tool.name + " " + tool.version + "\n"};
  } catch (const CLI::ParseError& error) {
    const std::string message = one_line(error.what());
    words.blame_file(message);
    return {ParseResult::Kind::kUsageError, message};
  }
  return {};
}

int run(int argc, char** argv, const Tool& tool, CommonOptions& common, const Declare& declare,
        const std::function<int()>& body) {
  fill_standard_descriptors();
  os::set_log(tool.name, os::LogLevel::kInfo);
  try {
    const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    const ParseResult parsed = parse(tool, common, declare, arguments);
    if (parsed.kind == ParseResult::Kind::kUsageError) {
      return report(tool, parsed.text, ExitStatus::kUsage);
    }
    if (parsed.kind == ParseResult::Kind::kPrint) {
      print(parsed.text);
      finish_output();
      return base::to_int(ExitStatus::kOk);
    }
    os::set_log(tool.name, threshold(tool, common));
    const int status = body();
    finish_output();
    return status;
  } catch (const Error& error) {
    return report(tool, error.what(), error.status());
  } catch (const std::bad_alloc&) {
    return report(tool, "out of memory", ExitStatus::kOsError);
  } catch (const std::exception& error) {
    return report(tool, error.what(), ExitStatus::kSoftware);
  }
}

}  // namespace fo::cli
