// The processes of one gms-serve: a server for each device and tag, started, watched, and started
// again after a crash with the layout that its vault has kept. Runs in the parent, which never
// touches CUDA and does little that can fail.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/strong.h"
#include "base/unique_fd.h"
#include "gms/bundle/serve.h"
#include "os/server_socket.h"

namespace fo::gms {

/// One server's place in the file system.
struct Place {
  base::DeviceOrdinal device;
  std::string uuid;
  std::string tag;
  std::string path;
  os::ServerSocket socket;
  std::vector<os::OwnedPath> links;
};

/// What was asked for, and what it amounts to here.
struct BundleConfig : ServeConfig {
  std::size_t max_connections = 0;
  std::size_t max_unread_fds = 0;
  /// Of this process.
  std::size_t fd_limit = 0;
};

/// What the parent has open besides its places.
struct BundleFds {
  /// A signalfd.
  base::UniqueFd signals;
  /// Listens, where metrics are wanted.
  base::UniqueFd metrics;
  /// The lock of a bundle's folder.
  base::UniqueFd folder;
};

/// Serves at these places until a signal arrives, as serve() says. Returns serve()'s answer.
int run_bundle(const BundleConfig& config, std::vector<Place> places, BundleFds fds);

}  // namespace fo::gms
