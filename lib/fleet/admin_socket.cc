#include "fleet/admin_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/deadline.h"
#include "base/error.h"
#include "http/client.h"
#include "http/message.h"
#include "os/file/file.h"

namespace fo::fleet {

using base::Error;
using base::ExitStatus;

namespace {

constexpr std::size_t kMaxAdminClients = 64;

}  // namespace

std::string default_admin_path(std::string_view name) {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool is_set = runtime != nullptr && *runtime != '\0' && ::geteuid() != 0;
  return (is_set ? std::string(runtime) : std::string("/run")) + "/fo/" + std::string(name);
}

void prepare_admin_folder(const std::string& socket_path) {
  const std::size_t slash = socket_path.rfind('/');
  if (slash == socket_path.npos || slash == 0) return;
  const std::string folder = socket_path.substr(0, slash);
  const std::string what = "use folder " + base::quoted(folder);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) base::throw_cannot_create(errno, what);
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) base::throw_errno(errno, what);
  // In a sticky folder, such as /tmp, another user cannot replace the socket.
  if ((status.st_mode & S_ISVTX) != 0) status.st_mode &= ~mode_t{S_IWGRP | S_IWOTH};
  if (const auto reason = os::find_other_writer(status)) {
    throw Error(ExitStatus::kNotPermitted, what + ": " + *reason);
  }
}

http::ServerLimits admin_limits() {
  http::ServerLimits limits = http::limits_for_probes(kMaxAdminClients);
  limits.own_user_only = true;
  return limits;
}

AdminAnswer send_admin_request(std::string_view daemon, const std::string& socket_path,
                               std::string_view method, const std::string& target,
                               base::Duration timeout) {
  const std::string what = "control " + std::string(daemon) + " at " + base::quoted(socket_path);
  const http::Response response =
      http::fetch(method, "unix:" + socket_path + ":" + target, base::Deadline::after(timeout));
  if (response.status == 200) return {.is_found = true, .text = response.body};
  std::string message = http::error_message_in(response.body);
  if (message.empty()) message = "status " + std::to_string(response.status);
  if (response.status == 404) return {.is_found = false, .text = message};
  const ExitStatus status = response.status == 400   ? ExitStatus::kUsage
                            : response.status == 503 ? ExitStatus::kTryAgain
                                                     : ExitStatus::kConfig;
  throw Error(status, what + ": " + message);
}

}  // namespace fo::fleet
