// One GPU memory server: one device and tag, its clients, its layout. An event loop in the calling
// thread holds all state.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "base/units.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/bundle/vault.h"
#include "gms/server/admission.h"
#include "gms/server/server_counters.h"

namespace fo::gms {

/// Whatever the limit on open files: what clients can make a server hold is bounded, see
/// gms-protocol(7).
inline constexpr std::size_t kMaxConnections = 4096;
inline constexpr std::size_t kMaxUnreadFds = 16384;
/// The most bytes of answers that wait for clients to take them.
inline constexpr std::size_t kMaxUnreadBytes = 128u << 20;

struct ServerConfig {
  std::shared_ptr<const cuda::Driver> driver;
  cuda::DeviceInfo device;
  /// For log lines: which GMS this is.
  std::string tag = "weights";
  /// Listening, non-blocking.
  base::UniqueFd listener;
  /// The server ends when this becomes readable (a signalfd, an eventfd, a pipe). Not owned.
  int stop_fd = -1;
  /// How long to go on trying when the device is out of memory, and how often.
  base::Duration alloc_retry_interval = std::chrono::milliseconds(500);
  base::Duration alloc_retry_timeout = std::chrono::seconds(60);
  /// Who may connect, besides root and our own user.
  AccessRules access;
  /// More clients than this wait in the socket's backlog.
  std::size_t max_connections = kMaxConnections;
  /// The most descriptors that are made for clients or on their way to them.
  std::size_t max_unread_fds = kMaxUnreadFds;
  /// This server's end of its vault, where the parent keeps layouts over a crash; invalid for none.
  base::UniqueFd vault;
  /// What the vault has kept of the server before this one.
  std::optional<Deposit> deposit;
  /// Outlives the server; never null.
  ServerCounters* counters = nullptr;
};

/// Serves until `stop_fd` is readable: then lets all clients go and returns. `on_ready` is called
/// once connections are being accepted. Throws Error(kSoftware) when the device fails in any other
/// way than being out of memory: nothing this server holds can be trusted any more.
void run_server(ServerConfig config, const std::function<void()>& on_ready);

}  // namespace fo::gms
