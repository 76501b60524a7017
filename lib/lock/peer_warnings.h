// Warnings that a peer can cause as often as it likes: one of each address in five seconds, with
// how many were left out. Addresses beyond the first 256 share one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace fo::lock {

class PeerWarnings {
 public:
  /// `host` is the peer's address without its port.
  void warn(const std::string& host, const std::string& text);

 private:
  struct Entry {
    std::chrono::steady_clock::time_point until;
    std::uint64_t left_out = 0;
  };
  std::map<std::string, Entry> entries_;
  Entry others_;
};

}  // namespace fo::lock
