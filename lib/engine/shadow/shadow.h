// One engine of a failover pair, from its start to its end: it sleeps beside the active engine,
// wakes when it is granted the lock, serves, is watched, and ends with all descendants. This is
// fo-shadow's whole work.
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
  /// Likely problems of this engine, logged at the start.
  std::vector<std::string> warnings;
  DriverOptions driver;
  /// False: start, register, serve; no lock, no sleep.
  bool failover = true;
  /// The locks to hold together while active, acquired in this order.
  std::vector<lock::LockUri> locks;
  /// The lock beside which the engines of this node have their sockets; is_local().
  lock::LockUri lock;
  /// The id in the locks.
  std::string id;
  /// The GMS of the weights; may be empty.
  std::vector<GmsPlace> gms;
  /// The GMS in which engines may have their KV memory; may be empty.
  std::vector<GmsPlace> kv;
  /// The devices whose memory the gate queries, and the size on each; nullopt: what this engine has
  /// released, and the engine before it in `kv`.
  std::vector<base::DeviceOrdinal> devices;
  std::optional<base::ByteCount> gpu_free;

  /// The address of the status server; without a port, it listens only on its Unix socket.
  std::string host = "0.0.0.0";
  std::optional<std::uint16_t> port = 9090;
  /// DYN_SYSTEM_PORT of the engine.
  std::uint16_t engine_port = 0;
  /// "HOST:PORT"; empty: nothing is published.
  std::string publish;
  /// Forward all bytes of that address: requests to the engine's control paths, too, and protocols
  /// other than HTTP/1.1.
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
  /// The time between SIGTERM and SIGKILL.
  base::Duration grace = std::chrono::seconds(5);
  /// While active: the interval of health queries, their timeout, the interval of proofs by a
  /// generation, and how many failures of one kind in a row end the engine.
  base::Duration health_interval = std::chrono::seconds(5);
  base::Duration health_timeout = std::chrono::seconds(5);
  base::Duration prove_interval = std::chrono::seconds(30);
  int failures = 3;
  base::Duration warn_after = std::chrono::seconds(30);
  int status_fd = -1;
};

/// Blocks signals and becomes a child subreaper: for a process's main thread, once. Returns the
/// exit status: 0 after SIGTERM, SIGINT, SIGHUP or SIGQUIT, the engine's own if it ended by itself.
/// Throws any other reason of the end, after everything has ended and the lock is released:
/// kTryAgain for a timeout, kBadData for another layout, kUnavailable for a GMS that is unreachable
/// or an engine that stopped serving, kSoftware if the first generation failed, kProtocol for a
/// lost lock, and what the lock and the driver throw.
int run_shadow(const ShadowOptions& options);

}  // namespace fo::engine
