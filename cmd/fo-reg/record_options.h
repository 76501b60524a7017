// The command line of the subcommands that use a registry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "fleet/record/instance.h"
#include "fleet/record/selection.h"
#include "fleet/record/worker_url.h"
#include "fleet/registry/uri.h"
#include "fleet/run_worker.h"

namespace CLI {
class App;
}

namespace fo::fo_reg {

struct RecordOptions {
  std::string registry = fleet::kDefaultRegistry;
  /// Registry for records that cannot be written to `registry`.
  std::string state_registry = fleet::kDefaultRegistry;
  fleet::EtcdParameters etcd;
  base::Duration timeout = std::chrono::seconds(5);

  // --- run
  /// The options of run, without a record and a command.
  fleet::RunOptions run;
  /// A card file, or a folder whose card is computed.
  std::string card_file;

  // --- put
  /// The key of a record that no process keeps; empty: a worker is registered.
  std::string key;
  // --- run, put
  std::string endpoint;
  /// The worker's record, without a life and a time.
  fleet::Instance worker;
  std::string life = "ready";
  std::vector<std::string> labels;
  std::string allowed_workers = fleet::kDefaultWorkers;
  int ready_fd = -1;

  // --- rm, drain, undrain, set, get
  fleet::Selection selection;
  /// Arguments of set: the id, unless there is a host, and NAME=VALUE.
  std::vector<std::string> words;

  // --- ls, watch
  std::string prefix = "instances/";
};

/// Throws Error(kUsage) with this reason.
[[noreturn]] void refuse(const std::string& reason);

/// The options of every subcommand that uses a registry.
void declare_registry(CLI::App& app, RecordOptions& options);
/// The registry that the options name. Throws what fleet::make_registry throws.
std::unique_ptr<fleet::Registry> open_registry(const RecordOptions& options);

void declare_run(CLI::App& app, RecordOptions& options);
void declare_put(CLI::App& app, RecordOptions& options);
void declare_selection(CLI::App& app, RecordOptions& options);
void declare_set(CLI::App& app, RecordOptions& options);
void declare_get(CLI::App& app, RecordOptions& options);
void declare_prefix(CLI::App& app, RecordOptions& options);

}  // namespace fo::fo_reg
