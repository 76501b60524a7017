// The command line of fo-shadow.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "engine/shadow.h"
#include "lock/lock_uri.h"

namespace fo::fo_shadow {

struct Options {
  enum class Command { kRun, kStatus, kSwitchOver };
  Command command = Command::kRun;
  cli::CommonOptions common;
  /// Of the subcommands, by command: CLI11 sets the environment's value for those that were not
  /// given, too.
  std::array<std::string, 3> pair_locks;
  [[nodiscard]] const std::string& pair_lock() const {
    return pair_locks[static_cast<std::size_t>(command)];
  }
  /// Of the engine.
  std::vector<std::string> locks;
  std::string kube_api;

  engine::ShadowOptions shadow;
  bool no_failover = false;
  /// Empty: from ENGINE_ID.
  std::string id;
  std::vector<std::string> gms;
  std::string socket_dir;
  std::string tag = "weights";
  std::vector<int> devices;
  int port = 9090;
  /// 0: derived from `port`.
  int engine_port = 0;
  /// Empty: the engine's usual one.
  std::string engine_url;
  std::vector<std::string> targets;
  /// Of `switchover`.
  base::Duration timeout = std::chrono::minutes(5);
};

void declare(CLI::App& app, Options& options);

/// What is to be run, as the command line, the environment and what is found in the folder of the
/// GMS sockets say. Throws kUsage, kConfig.
engine::ShadowOptions to_shadow_options(const Options& options);

}  // namespace fo::fo_shadow
