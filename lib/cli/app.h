// The frame of every main: arguments in, one library call, an exit status out. Whatever goes wrong
// is said in one line on stderr and turned into a status of fo-exit-status(7) here and only here.
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

/// What every tool understands.
struct CommonOptions {
  bool json = false;
  int verbose = 0;
  bool quiet = false;
  /// Of daemons; none: with times, where stderr is no journal, which has its own.
  std::optional<os::LogFormat> log_format;
  /// The words after the first "--", for tools that take a command.
  std::vector<std::string> command;
};

struct Tool {
  std::string name;
  std::string summary;
  std::string version;
  /// The words after the first "--" are a command, not arguments of ours.
  bool takes_command = false;
  /// The subcommands that take none all the same.
  std::vector<std::string> without_command = {};
  /// Progress lines (info) without -v, and --log-format: for daemons.
  bool is_daemon = false;
};

/// Declares a tool's own options and subcommands. Pure: it touches nothing but `app` and what the
/// options are bound to.
using Declare = std::function<void(CLI::App& app)>;

/// What parsing ended with.
struct ParseResult {
  enum class Kind { kRun, kPrint, kUsageError };
  Kind kind = Kind::kRun;
  /// What to print: help or version (kPrint), or the reason (kUsageError).
  std::string text;
};

/// Parses `arguments` (without the program's name). Prints nothing. Flags beat the environment
/// beats `--config FILE`, for which it throws Error (kConfig, or why it can't be read). For tests
/// and for run().
ParseResult parse(const Tool& tool, CommonOptions& common, const Declare& declare,
                  const std::vector<std::string>& arguments);

/// Parses argv, sets up the log, calls `body`, checks that stdout took what was written, and
/// returns the process's exit status. `body` returns an exit status; an Error thrown by it is
/// reported as "tool: error: message".
int run(int argc, char** argv, const Tool& tool, CommonOptions& common, const Declare& declare,
        const std::function<int()>& body);

}  // namespace fo::cli
