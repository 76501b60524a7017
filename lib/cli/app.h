// The frame of every main: arguments in, one library call, an exit status out. Only here does a
// failure become one line on stderr and a status of fo-exit-status(7).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "os/log.h"

namespace CLI {
class App;
}

namespace fo::cli {

/// The options of every tool.
struct CommonOptions {
  bool json = false;
  int verbose = 0;
  bool quiet = false;
  /// The format of a daemon's log; nullopt: with times, unless stderr is a journal, which adds its
  /// own.
  std::optional<os::LogFormat> log_format;
  /// The words after the first "--", for tools that take a command.
  std::vector<std::string> command;
};

struct Tool {
  std::string name;
  std::string summary;
  std::string version;
  /// The words after the first "--" are a command, not arguments of the tool.
  bool takes_command = false;
  /// The subcommands that take no command.
  std::vector<std::string> without_command = {};
  /// A daemon logs info lines without -v, and has --log-format.
  bool is_daemon = false;
};

/// Declares a tool's own options and subcommands. Pure: it changes only `app` and the variables
/// that the options are bound to.
using Declare = std::function<void(CLI::App& app)>;

/// The result of parsing.
struct ParseResult {
  enum class Kind { kRun, kPrint, kUsageError };
  Kind kind = Kind::kRun;
  /// The text to print: help or version (kPrint), or the reason (kUsageError).
  std::string text;
};

/// Parses `arguments` (without the program's name). Prints nothing. Flags take precedence over the
/// environment, and the environment over `--config FILE`. Throws Error for an invalid value of the
/// last two (kConfig), and for a file that cannot be read. For tests and for run().
ParseResult parse(const Tool& tool, CommonOptions& common, const Declare& declare,
                  const std::vector<std::string>& arguments);

/// Sets the level and the format of the log from the options.
void set_log(const Tool& tool, const CommonOptions& common);

/// Parses argv, sets up the log, calls `body`, checks that stdout was written, and returns the
/// process's exit status: that of `body`, or that of an Error, which is reported as "tool: error:
/// message".
int run(int argc, char** argv, const Tool& tool, CommonOptions& common, const Declare& declare,
        const std::function<int()>& body);

/// Like run() above, for a tool's own options, which contain the common ones. `body` returns an int
/// or an ExitStatus.
template <typename Options, typename Body>
int run(int argc, char** argv, const Tool& tool, Options& options,
        void (*declare)(CLI::App&, Options&), Body body) {
  return run(
      argc, argv, tool, options.common, [&](CLI::App& app) { declare(app, options); },
      [&] { return static_cast<int>(body()); });
}

}  // namespace fo::cli
