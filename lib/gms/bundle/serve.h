// The main function of gms-serve: a parent process that owns the sockets and never calls CUDA, and
// a child process with a server for each device and tag.
#pragma once

#include <string>
#include <vector>

#include "base/strong.h"
#include "base/units.h"
#include "gms/server/admission.h"

namespace fo::gms {

/// The reaction to a server that dies by a signal.
enum class OnCrash {
  kRestart,  // restart it with the layout that it had published, until it crashes too often
  kExit,     // end all servers
};

struct ServeConfig {
  /// Argument of cuda::Driver::open.
  std::string driver = "auto";
  /// The one socket of a server for one device and tag; empty for a bundle in `socket_dir`.
  std::string socket_path;
  std::string socket_dir;
  /// Empty: all devices.
  std::vector<base::DeviceOrdinal> devices;
  std::vector<std::string> tags;
  /// Receives a newline, and is closed, once every server answers; -1 for none. Takes ownership.
  int ready_fd = -1;
  /// Users and groups that may connect besides root and our own user.
  AccessRules access;
  /// The sockets' permission bits.
  mode_t socket_mode = 0600;
  base::Duration alloc_retry_interval = std::chrono::milliseconds(500);
  base::Duration alloc_retry_timeout = std::chrono::seconds(60);
  OnCrash on_crash = OnCrash::kRestart;
  /// The folder of a snapshot, or one with a folder device-N for each device, to load into servers
  /// that start without a layout. Empty for none.
  std::string restore;
  /// HOST:PORT for Prometheus metrics; empty for none.
  std::string metrics;
};

/// Serves until SIGTERM, SIGINT, SIGHUP or SIGQUIT (returns 0), or until a server ends that is not
/// restarted: then ends the others and returns its exit status. A bundle creates links by device
/// index next to its sockets, and the file gms-ready while all servers answer; it removes them at
/// its end. Throws kCannotCreate for a socket that another server serves, kUnavailable for a
/// missing driver or device, kUsage for a socket path that is too long.
int serve(const ServeConfig& config);

}  // namespace fo::gms
