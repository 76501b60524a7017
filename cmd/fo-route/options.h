// The command line of fo-route.
#pragma once

#include <string>
#include <vector>

#include "cli/app.h"
#include "route/serve.h"

namespace CLI {
class App;
}

namespace fo::fo_route {

struct Options {
  enum class Command { kServe, kCtl };

  cli::CommonOptions common;
  Command command = Command::kServe;
  route::ServeOptions serve;
  std::vector<std::string> workers;
  std::vector<std::string> namespaces;
  std::string worker_key_file;
  std::string worker_ca;
  std::string allowed_workers;
  std::string keys_file;
  std::string breaker = "standard";
  bool strict_sets = false;
  bool no_resume = false;

  /// Action of ctl and its arguments.
  std::vector<std::string> words;
  std::string admin;
  base::Duration timeout = std::chrono::seconds(5);
};

void declare(CLI::App& app, Options& options);

/// Checks values and their combinations, and reads the files that options name. Throws Error.
void check(Options& options);

/// Reads the options of `serve` for a reload: from the same arguments, and from the present content
/// of the files that they name. Throws what check() and cli::parse throw.
route::ServeOptions read_again(const cli::Tool& tool, const std::vector<std::string>& arguments);

}  // namespace fo::fo_route
