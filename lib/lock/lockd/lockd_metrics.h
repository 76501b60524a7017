// The text of gms-lockd's GET /metrics. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fo::lock {

/// The numbers from LockdModel.
struct LockdCounts {
  bool is_held = false;
  /// A restarted server waits for its recorded holder.
  bool is_recovering = false;
  /// The last generation that was reported to a client.
  std::uint64_t generation = 0;
  std::size_t holding = 0;
  std::size_t waiting = 0;
  /// Since this server started.
  std::uint64_t grants = 0;
  std::uint64_t record_failures = 0;
};

struct LockdMetrics {
  LockdCounts lock;
  /// Current connections of the socket and of the port.
  std::size_t on_socket = 0;
  std::size_t on_port = 0;
  /// Since this server started: refusals by exit status, and leases that were not renewed.
  std::map<int, std::uint64_t> refusals{{70, 0}, {71, 0}, {75, 0}, {76, 0}, {77, 0}, {78, 0}};
  std::uint64_t expired_leases = 0;
};

std::string metrics_text(const LockdMetrics& metrics);

}  // namespace fo::lock
