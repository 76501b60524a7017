// The processes of one gms-serve: one server for each device and tag. It starts and watches them,
// and restarts one after a crash with the layout that its descriptor store has kept. Runs in the
// parent, which never calls CUDA and does little that can fail.
#pragma once

#include <string>
#include <vector>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "gms/bundle/serve.h"
#include "os/socket/ready_fd.h"
#include "os/socket/server_socket.h"

namespace fo::gms {

/// The socket of one server, with its device and tag.
struct ServerEntry {
  base::DeviceOrdinal device;
  base::GpuUuid uuid;
  std::string tag;
  std::string path;
  os::ServerSocket socket;
  std::vector<os::OwnedPath> links;
};

/// The configuration, and the limits that serve() derives from it and from this machine.
struct BundleConfig : ServeConfig {
  std::size_t max_connections = 0;
  std::size_t max_unread_fds = 0;
  /// The limit on open files of this process.
  std::size_t fd_limit = 0;
};

/// The descriptors of the parent besides its sockets.
struct BundleFds {
  os::ReadyFd ready;
  /// os::open_ending_signals().
  base::UniqueFd signals;
  /// The listening socket for metrics, if configured.
  base::UniqueFd metrics;
  /// The lock of a bundle's folder.
  base::UniqueFd folder;
};

/// Serves these sockets until a signal arrives, as serve() does; returns its exit status.
int run_bundle(const BundleConfig& config, std::vector<ServerEntry> entries, BundleFds fds);

}  // namespace fo::gms
