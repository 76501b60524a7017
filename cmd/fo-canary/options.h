// The command line of fo-canary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "canary/check/checker_options.h"
#include "cli/app.h"
#include "fleet/registry/uri.h"
#include "net/tls_files.h"

namespace CLI {
class App;
}

namespace fo::fo_canary {

struct Options {
  cli::CommonOptions common;
  /// Does the work of the subcommand that was given, and returns the exit status.
  int (*run)(const Options& options) = nullptr;

  // --- learn, once, run
  /// The URLs of engines.
  std::vector<std::string> workers;
  std::string worker_key_file;
  std::string worker_ca;
  /// The paths of files of canaries.
  std::vector<std::string> canaries;
  canary::CheckerOptions checker;

  // --- learn
  /// Name of the model, also for once; if empty there, the model of the file.
  std::string model;
  std::string card_file;
  std::string prompts;
  std::string output;
  std::uint64_t min_canaries = 8;

  // --- run
  std::vector<std::string> namespaces;
  std::string allowed_workers;
  /// Name of this canary; if empty, the name of the host is used.
  std::string name;
  base::Duration interval = std::chrono::seconds(30);
  /// "FILE" or "HOST=FILE".
  std::vector<std::string> xid_logs;
  std::string state;
  std::string metrics;
  int ready_fd = -1;

  // --- run, state
  std::string admin;

  // --- run, acquit
  std::string registry = fleet::kDefaultRegistry;
  /// Registry for records that cannot be written to `registry`.
  std::string state_registry = fleet::kDefaultRegistry;

  // --- acquit, state
  /// Id of a worker.
  std::string id;
  base::Duration timeout = std::chrono::seconds(5);

  // --- rules
  bool print_tests = false;
  /// Time that each state must last; nullopt: the time in its rule.
  std::optional<std::uint64_t> for_seconds;

  // --- xid
  std::string log = "/dev/kmsg";
  bool follow = false;
};

void declare(CLI::App& app, Options& options);

/// The registry that the options name. Throws what fleet::make_registry throws.
std::unique_ptr<fleet::Registry> open_registry(const Options& options);

/// The authority of the engines' certificates; without one, https is refused.
std::optional<net::TlsFiles> worker_tls(const Options& options);

/// The admin socket of the daemon.
std::string admin_path(const Options& options);

}  // namespace fo::fo_canary
