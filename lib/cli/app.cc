#include "cli/app.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
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

// CLI11 knows nothing of the command after "--".
class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(bool takes_command) : takes_command_(takes_command) { column_width(28); }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = CLI::Formatter::make_usage(app, std::move(name));
    if (takes_command_ && app->get_subcommands({}).empty()) {
      usage.insert(usage.find_last_not_of('\n') + 1, " [-- COMMAND [ARG]...]");
    }
    return usage;
  }

 private:
  bool takes_command_;
};

// Every app and subcommand gets the common options, after its own, and --help and --version last.
void add_common(CLI::App& app, const Tool& tool, CommonOptions& common) {
  for (CLI::App* sub : app.get_subcommands({})) add_common(*sub, tool, common);
  const bool is_parent = !app.get_subcommands({}).empty();
  if (!is_parent) {
    app.add_flag("--json", common.json, "print JSON instead of text");
    app.add_flag("-v,--verbose", common.verbose, "say more on stderr (twice: debug)");
    app.add_flag("-q,--quiet", common.quiet, "say nothing on stderr but errors");
    app.set_config("--config", "", "read options from this TOML file")->type_name("FILE");
    app.config_formatter(std::make_shared<TomlConfig>(app));
  }
  app.set_help_flag("-h,--help", "print this help and exit");
  app.set_version_flag("--version", tool.name + " " + tool.version, "print the version and exit");
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

int report(const std::string& message, ExitStatus status) {
  os::log_line(os::LogLevel::kError, message);
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
  app.formatter(std::make_shared<UsageFormatter>(tool.takes_command));
  try {
    declare(app);
    add_common(app, tool, common);
    std::reverse(own.begin(), own.end());  // CLI11 takes them last first
    app.parse(std::move(own));
  } catch (const CLI::CallForHelp&) {
    return {ParseResult::Kind::kPrint, parsed_app(app)->help()};
  } catch (const CLI::CallForAllHelp&) {
    return {ParseResult::Kind::kPrint, app.help("", CLI::AppFormatMode::All)};
  } catch (const CLI::CallForVersion&) {
    return {ParseResult::Kind::kPrint, tool.name + " " + tool.version + "\n"};
  } catch (const CLI::ParseError& error) {
    return {ParseResult::Kind::kUsageError, one_line(error.what())};
  }
  return {};
}

int run(int argc, char** argv, const Tool& tool, CommonOptions& common, const Declare& declare,
        const std::function<int()>& body) {
  os::set_log(tool.name, os::LogLevel::kInfo);
  try {
    const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    const ParseResult parsed = parse(tool, common, declare, arguments);
    if (parsed.kind == ParseResult::Kind::kUsageError) {
      const int status = report(parsed.text, ExitStatus::kUsage);
      std::fprintf(stderr, "Try '%s --help'\n", tool.name.c_str());
      return status;
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
    return report(error.what(), error.status());
  } catch (const std::bad_alloc&) {
    return report("out of memory", ExitStatus::kOsError);
  } catch (const std::exception& error) {
    return report(error.what(), ExitStatus::kSoftware);
  }
}

}  // namespace fo::cli
