// What GET /metrics of gms-lockd answers. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace fo::lock {

/// What LockdModel knows of it.
struct LockdCounts {
  bool is_held = false;
  /// A new server waits for the last one's holder.
  bool is_recovering = false;
  /// The last that anybody was told.
  std::uint64_t generation = 0;
  std::size_t holding = 0;
  std::size_t waiting = 0;
  /// Since this server started.
  std::uint64_t grants = 0;
  std::uint64_t record_failures = 0;
};

struct LockdMetrics {
  LockdCounts lock;
  /// Connections now, on the socket and on the port.
  std::size_t on_socket = 0;
  std::size_t on_port = 0;
  /// Since this server started: refusals by their status, and leases that were not renewed.
  std::map<int, std::uint64_t> refusals{{70, 0}, {71, 0}, {75, 0}, {76, 0}, {77, 0}, {78, 0}};
  std::uint64_t expired_leases = 0;
};

std::string metrics_text(const LockdMetrics& metrics);

}  // namespace fo::lock
