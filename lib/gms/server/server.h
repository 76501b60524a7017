// One GPU memory server: one device and tag, its clients, its layout. All state belongs to an event
// loop in the calling thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "base/units.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/bundle/fd_store.h"
#include "gms/server/admission.h"
#include "gms/server/server_counters.h"

namespace fo::gms {

/// Limits on what clients can make a server hold, see gms-protocol(7). A server with a low limit on
/// open files has lower ones.
inline constexpr std::size_t kMaxConnections = 4096;
inline constexpr std::size_t kMaxUnreadFds = 16384;
/// Maximum size of answers that clients have not read.
inline constexpr std::size_t kMaxUnreadBytes = 128u << 20;

struct ServerConfig {
  std::shared_ptr<const cuda::Driver> driver;
  cuda::DeviceInfo device;
  /// Identifies this GMS in log lines.
  std::string tag = "weights";
  /// Listening, non-blocking.
  base::UniqueFd listener;
  /// The server ends when this becomes readable (a signalfd, an eventfd, a pipe). Not owned.
  int stop_fd = -1;
  /// For how long, and how often, to retry when the device is out of memory.
  base::Duration alloc_retry_interval = std::chrono::milliseconds(500);
  base::Duration alloc_retry_timeout = std::chrono::seconds(60);
  /// Which users may connect besides root and our own user.
  AccessRules access;
  /// More clients wait in the socket's backlog.
  std::size_t max_connections = kMaxConnections;
  /// Maximum number of descriptors created for clients or in flight to them.
  std::size_t max_unread_fds = kMaxUnreadFds;
  /// This server's end of its descriptor store, where the parent keeps layouts across a crash;
  /// invalid for none.
  base::UniqueFd fd_store;
  /// The stored layout of the previous server in the descriptor store.
  std::optional<StoredLayout> stored_layout;
  /// Must outlive the server; never null.
  ServerCounters* counters = nullptr;
};

/// Serves until `stop_fd` is readable, then disconnects all clients and returns. `on_ready` is
/// called when connections are accepted. Throws Error(kSoftware) if the device fails other than by
/// being out of memory, because then nothing that this server holds can be trusted.
void run_server(ServerConfig config, const std::function<void()>& on_ready);

}  // namespace fo::gms
