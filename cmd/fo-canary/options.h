// The command line of fo-canary.
#pragma once

#include <memory>
#include <string>

#include "base/units.h"
#include "cli/app.h"
#include "fleet/registry/uri.h"

namespace CLI {
class App;
}

namespace fo::fo_canary {

struct Options {
  cli::CommonOptions common;
  /// Of the subcommand that was given: does its work, and returns the exit status.
  int (*run)(const Options& options) = nullptr;

  // --- run, acquit
  std::string registry = fleet::kDefaultRegistry;
  /// For what cannot be written to `registry`.
  std::string state_registry = fleet::kDefaultRegistry;

  // --- acquit
  /// Of a worker.
  std::string id;
  base::Duration timeout = std::chrono::seconds(5);
};

void declare(CLI::App& app, Options& options);

/// The registry that the options name. Throws what fleet::make_registry throws.
std::unique_ptr<fleet::Registry> open_registry(const Options& options);

}  // namespace fo::fo_canary
