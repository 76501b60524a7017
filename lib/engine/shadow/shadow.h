// One engine of a failover pair, from its start to its end: kept asleep beside the active one,
// woken when the lock says so, served, watched, and ended with all that it started. fo-shadow's
// whole job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strong.h"
#include "base/units.h"
#include "engine/drivers/driver.h"
#include "engine/gms_watch.h"
#include "lock/lock_uri.h"

namespace fo::engine {

struct ShadowOptions {
  /// The engine.
  std::vector<std::string> command;
  /// What is likely to go wrong with it, logged at the start.
  std::vector<std::string> warnings;
  DriverOptions driver;
  /// False: start, register, serve; no lock, no sleep.
  bool failover = true;
  /// To hold together while active, taken in this order.
  std::vector<lock::LockUri> locks;
  /// The one of them beside which the engines of this node find each other; is_local().
  lock::LockUri lock;
  /// Of the locks.
  std::string id;
  /// Where the weights lie; may be empty.
  std::vector<GmsPlace> gms;
  /// Where engines may have their KV memory; may be empty.
  std::vector<GmsPlace> kv;
  /// Whose memory the gate asks for; how much on each, nullopt: what the engine gave back, and the
  /// engine before it in `kv`.
  std::vector<base::DeviceOrdinal> devices;
  std::optional<base::ByteCount> gpu_free;

  /// Of the status server. No port: none.
  std::string host = "0.0.0.0";
  std::optional<std::uint16_t> port = 9090;
  /// DYN_SYSTEM_PORT of the engine.
  std::uint16_t engine_port = 0;
  /// "HOST:PORT"; empty: nothing is published.
  std::string publish;
  /// Clients of that address reach the engine's control paths, too, by whatever protocol.
  bool publish_control = false;
  /// Run by sh -c; empty: none.
  std::string register_command;
  std::string deregister_command;
  /// Names and URLs of health-check targets: 200 is ready.
  std::vector<std::pair<std::string, std::string>> targets;

  base::Duration start_timeout = std::chrono::hours(2);
  base::Duration sleep_timeout = std::chrono::seconds(60);
  /// From the grant of the lock until the engine is active. A cold engine has start_timeout more.
  base::Duration wake_timeout = std::chrono::seconds(120);
  base::Duration remap_timeout = std::chrono::seconds(30);
  base::Duration prove_timeout = std::chrono::seconds(30);
  base::Duration register_timeout = std::chrono::seconds(10);
  base::Duration gms_grace = std::chrono::seconds(30);
  base::Duration drain = std::chrono::seconds(30);
  /// Between TERM and KILL for what has to go.
  base::Duration grace = std::chrono::seconds(5);
  /// While active: how often health is asked for and a generation proved, how long an answer may
  /// take, and how many failures of one kind in a row end the engine.
  base::Duration health_interval = std::chrono::seconds(5);
  base::Duration health_timeout = std::chrono::seconds(5);
  base::Duration prove_interval = std::chrono::seconds(30);
  int failures = 3;
  base::Duration warn_after = std::chrono::seconds(30);
  int status_fd = -1;
};

/// Blocks signals and becomes a child subreaper: for a process's main thread, once. Returns the
/// status to exit with: 0 after SIGTERM, SIGINT, SIGHUP or SIGQUIT, the engine's own when it ended
/// by itself. Throws what ended it otherwise, when everything has ended and the lock is given up:
/// kTryAgain for a limit that passed, kBadData for another layout, kUnavailable for a GMS that is
/// away or an engine that does not serve any more, kSoftware for a first generation that failed,
/// kProtocol for a lock that was lost, and what the lock and the driver throw.
int run_shadow(const ShadowOptions& options);

}  // namespace fo::engine
