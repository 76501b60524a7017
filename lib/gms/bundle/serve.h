// What gms-serve is: a parent process that owns the sockets and never touches CUDA, and a child
// process with a server for each device and tag.
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "gms/server/admission.h"

namespace fo::gms {

/// What happens when a server dies of a signal.
enum class OnCrash {
  kRestart,  // it is started again with the layout it had published, until it happens too often
  kExit,     // everything ends
};

struct ServeConfig {
  /// As cuda::Driver::open takes it.
  std::string driver = "auto";
  /// The one socket of a server for one device and tag; empty for a bundle in `socket_dir`.
  std::string socket_path;
  std::string socket_dir;
  /// Empty: every device there is.
  std::vector<int> devices;
  std::vector<std::string> tags;
  /// Gets a newline, and is closed, once every server answers; -1 for none. Taken over.
  int ready_fd = -1;
  /// Who may connect, besides root and our own user.
  AccessRules access;
  /// The sockets' permission bits.
  mode_t socket_mode = 0600;
  base::Duration alloc_retry_interval = std::chrono::milliseconds(500);
  base::Duration alloc_retry_timeout = std::chrono::seconds(60);
  OnCrash on_crash = OnCrash::kRestart;
  /// A snapshot's folder, or one with a folder device-N for each device: what a server that begins
  /// with nothing gets. Empty for none.
  std::string restore;
  /// HOST:PORT to serve Prometheus' metrics on; empty for none.
  std::string metrics;
};

/// Serves until SIGTERM, SIGINT or SIGHUP (returns 0), or until a server ends that is not started
/// again: then ends the rest and returns that one's exit status. A bundle leaves links by device
/// number beside its sockets and the file gms-ready while all servers answer; nothing of that stays
/// when it ends. Errors: kCannotCreate for a socket that another server serves, kUnavailable for a
/// driver or device that is not there, kUsage for a socket path that is too long.
int serve(const ServeConfig& config);

}  // namespace fo::gms
