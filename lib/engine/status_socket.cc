#include "engine/status_socket.h"

#include "base/error.h"
#include "lock/grant.h"

namespace fo::engine {

std::string status_socket_path(const lock::LockUri& lock, const std::string& id) {
  lock::check_lock_id(id);
  const std::string path = lock.path + "." + id + ".sock";
  const bool has_slash = id.find('/') != std::string::npos;
  if (has_slash || path.find(':') != std::string::npos) {
    throw base::Error(base::ExitStatus::kConfig,
                      "use status socket " + base::quoted(path) + ": " +
                          (has_slash ? "a slash in the engine's id" : "a colon in the path"));
  }
  return path;
}

}  // namespace fo::engine
