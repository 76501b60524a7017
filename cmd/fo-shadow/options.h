// The command line of fo-shadow.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/app.h"
#include "cli/endpoint_options.h"
#include "engine/shadow/shadow.h"
#include "lock/lock_uri.h"

namespace fo::fo_shadow {

struct Options {
  enum class Command { kRun, kStatus, kSwitchOver };
  Command command = Command::kRun;
  cli::CommonOptions common;
  /// One per command, because CLI11 also sets the environment's value for commands that were not
  /// given.
  std::array<std::string, 3> pair_locks;
  [[nodiscard]] const std::string& pair_lock() const {
    return pair_locks[static_cast<std::size_t>(command)];
  }
  /// The engine's locks.
  std::vector<std::string> locks;
  std::string kube_api;

  engine::ShadowOptions shadow;
  bool no_failover = false;
  /// Empty: from ENGINE_ID.
  std::string id;
  std::vector<std::string> gms;
  std::string socket_dir;
  std::string tag = "weights";
  std::vector<base::DeviceOrdinal> devices;
  int port = 9090;
  /// 0: derived from `port`.
  int engine_port = 0;
  /// Empty: the engine's usual one.
  std::string engine_url;
  std::vector<std::string> targets;
  /// Timeout of `switchover`.
  base::Duration timeout = std::chrono::minutes(5);
};

void declare(CLI::App& app, Options& options);

/// The configuration from the command line, the environment and the folder of the GMS sockets.
/// Throws kUsage, kConfig, and kUnavailable if the folder has no socket.
engine::ShadowOptions to_shadow_options(const Options& options);

}  // namespace fo::fo_shadow
