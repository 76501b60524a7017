#include "lock/lock_uri.h"

#include "base/error.h"

namespace fo::lock {

LockUri parse_lock_uri(std::string_view text) {
  const auto refuse = [&](const std::string& reason) {
    throw base::Error(base::ExitStatus::kUsage,
                      "read lock URI " + base::quoted(text) + ": " + reason);
  };
  LockUri uri;
  std::string_view path = text;
  if (const std::size_t colon = text.find(':'); !text.starts_with('/') && colon != text.npos) {
    const std::string_view kind = text.substr(0, colon);
    if (kind == "unix") {
      uri.kind = LockUri::Kind::kLockd;
    } else if (kind != "flock") {
      refuse("no such kind of lock; supported: flock:/path, unix:/path.sock");
    }
    path.remove_prefix(colon + 1);
  }
  if (!path.starts_with('/')) refuse("want an absolute path, as in flock:/path");
  if (path.ends_with('/')) refuse("that is a folder");
  uri.path = path;
  return uri;
}

}  // namespace fo::lock
