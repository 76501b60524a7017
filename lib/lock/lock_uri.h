// How a lock is named on a command line: flock:/path or the bare path, unix:/path.sock.
#pragma once

#include <string>
#include <string_view>

namespace fo::lock {

inline constexpr std::string_view kDefaultLockPath = "/shared/failover.lock";

struct LockUri {
  enum class Kind {
    kFlock,  // a file
    kLockd,  // a lock server behind a Unix socket
  };
  Kind kind = Kind::kFlock;
  /// Absolute.
  std::string path;
};

/// Throws Error(kUsage) for what names no lock of this build; the message says what does.
LockUri parse_lock_uri(std::string_view text);

}  // namespace fo::lock
