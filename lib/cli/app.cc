#include "cli/app.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>

#include "base/error.h"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/completion.h"
#include "cli/config/print_config.h"
#include "cli/config/settings.h"
#include "cli/config/variables.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/screen/output.h"
#include "os/log.h"
#include "text/nearest_name.h"

namespace fo::cli {
namespace {

using base::Error;
using base::ExitStatus;

void add_log_format(CLI::App& app, CommonOptions& common) {
  using enum os::LogFormat;
  add_choice(app, "--log-format", common.log_format,
             {{"json", kJson}, {"text", kText}, {"timed", kTimed}},
             "text, timed or json (default: timed, in a journal text)", "FORMAT")
      ->envname("FO_LOG_FORMAT");
}

std::string version_line(const Tool& tool) {
  return tool.name + " " + tool.version + " (" + std::string(build_info()) + ")";
}

// Every app and subcommand that can run gets the common options after its own, with --help and
// --version last.
void add_common(CLI::App& app, const Tool& tool, CommonOptions& common) {
  for (CLI::App* sub : app.get_subcommands({})) add_common(*sub, tool, common);
  if (runs_itself(app)) {
    app.add_flag("--json", common.json, "print JSON instead of text");
    app.add_flag("-v,--verbose", common.verbose, "log more on stderr (twice: debug)");
    app.add_flag("-q,--quiet", common.quiet, "log only errors on stderr");
    if (tool.is_daemon) add_log_format(app, common);
    // Both are read before CLI11 gets the words: see Settings.
    app.add_option_function<std::string>(
           "--config", [](const std::string&) {}, "read options from this TOML or JSON file")
        ->type_name("FILE")
        ->configurable(false);
    app.add_flag_callback(
           "--print-config", [] {}, "print each option's value and its source, and exit")
        ->configurable(false);
  }
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", version_line(tool), "print the version and exit");
}

// If a standard descriptor is closed at start, the next file or socket would get its number, and
// output for stdout would be written there. These descriptors fail every read and write with EBADF
// instead.
void fill_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number: fd
    }
  }
}

CLI::App* parsed_app(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return at;
}

// A suggestion for an unexpected word.
std::string suggestion(CLI::App& app, const std::string& word, bool is_first) {
  const CLI::App* at = parsed_app(app);
  std::vector<std::string> known;
  if (word.starts_with('-')) {
    if (at->get_option_no_throw(word) != nullptr) {
      return at == &app ? "" : "; it belongs after " + base::quoted(at->get_name());
    }
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    }
  } else if (at == &app) {
    for (const CLI::App* sub : app.get_subcommands({})) {
      if (!sub->get_group().empty()) known.push_back(sub->get_name());
    }
    if (is_first) known.emplace_back("completion");
  }
  return text::did_you_mean(word, {known.begin(), known.end()});
}

// A message that lists the subcommands, if one is expected and the first word is not one; otherwise
// empty.
std::string unknown_subcommand(const CLI::App& app, const std::string& word) {
  std::string names;
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (!sub->get_group().empty()) names += (names.empty() ? "" : ", ") + sub->get_name();
  }
  if (word.starts_with('-') || names.empty() ||
      !app.get_options([](const CLI::Option* option) { return option->get_positional(); })
           .empty()) {
    return {};
  }
  return "unknown subcommand " + base::quoted(word) + "; the subcommands are: " + names;
}

// The message of a CLI11 error. If the first unexpected word resembles a known one, the message is
// about that word, because it may have caused the other errors.
std::string explained(CLI::App& app, const CLI::ParseError& error,
                      const std::vector<std::string>& arguments) {
  std::vector<std::string> unexpected = app.remaining(true);
  std::erase(unexpected, "--");
  if (unexpected.empty()) return base::one_line(error.what());
  const std::string& word = unexpected.front();
  const std::string meant =
      suggestion(app, word.substr(0, word.find('=')), word == arguments.front());
  if (meant.empty() && word == arguments.front()) {
    std::string unknown = unknown_subcommand(app, base::one_line(word));
    if (!unknown.empty()) return unknown;
  }
  const bool is_all = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (meant.empty() && !is_all) return base::one_line(error.what());
  return "The following argument was not expected: " + base::one_line(word) + meant;
}

os::LogLevel threshold(const Tool& tool, const CommonOptions& common) {
  if (common.quiet) return os::LogLevel::kError;
  const int base = static_cast<int>(tool.is_daemon ? os::LogLevel::kInfo : os::LogLevel::kWarning);
  return static_cast<os::LogLevel>(
      std::min(base + common.verbose, static_cast<int>(os::LogLevel::kDebug)));
}

os::LogFormat log_format(const Tool& tool, const CommonOptions& common) {
  if (common.log_format) return *common.log_format;
  return tool.is_daemon && !os::logs_to_journal() ? os::LogFormat::kTimed : os::LogFormat::kText;
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
  app.formatter(help_formatter(tool));
  declare(app);
  add_common(app, tool, common);
  if (auto answer = answer_completion(app, tool, arguments)) return *answer;
  Settings settings(app, std::move(own));
  if (settings.ask_for_help()) {
    const CLI::App& asked = settings.app();
    return {ParseResult::Kind::kPrint, asked.help(&asked == &app ? "" : tool.name)};
  }
  if (settings.ask_for_version()) {
    return {ParseResult::Kind::kPrint, version_line(tool) + "\n"};
  }
  settings.settle();
  const bool only_print = settings.ask_for_themselves();
  try {
    app.parse(settings.reversed());
  } catch (const CLI::ParseError& error) {
    settings.blame_origin(base::one_line(error.what()));
    return {ParseResult::Kind::kUsageError, explained(app, error, arguments)};
  }
  if (!common.command.empty() && !takes_command(settings.app(), tool)) {
    return {ParseResult::Kind::kUsageError, settings.app().get_name() + " takes no command"};
  }
  if (!only_print) return {};
  const auto print = common.json ? to_json : to_toml;
  return {ParseResult::Kind::kPrint, print(settings.effective(), set_variables(settings.app()))};
}

void set_log(const Tool& tool, const CommonOptions& common) {
  os::set_log(tool.name, threshold(tool, common), log_format(tool, common));
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
    set_log(tool, common);
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
