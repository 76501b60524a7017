// The admin socket of a daemon: an HTTP server on a Unix socket that only our own user and root can
// use. Where it is, its folder, and its client.
#pragma once

#include <string>
#include <string_view>

#include "base/units.h"
#include "http/server.h"

namespace fo::fleet {

/// $XDG_RUNTIME_DIR/fo/NAME; for root, and without that variable, /run/fo/NAME.
std::string default_admin_path(std::string_view name);

/// Creates the folder of the socket with mode 0700 unless it exists. Throws kCannotCreate, and
/// kNotPermitted for a folder that another user owns or may write.
void prepare_admin_folder(const std::string& socket_path);

/// Only our own user and root are served, also if the mode of the socket's file was changed.
http::ServerLimits admin_limits();

struct AdminAnswer {
  bool is_found = false;
  /// The body of an answer, or the message of an error.
  std::string text;
};
/// Sends one request to the daemon behind the socket; `daemon` is its name in messages, such as
/// "the router". Throws kUnavailable, kTryAgain and kNotPermitted if it does not answer, kTryAgain
/// if it answers 503, and kUsage for what it refuses as invalid.
AdminAnswer ask_admin(std::string_view daemon, const std::string& socket_path,
                      std::string_view method, const std::string& target, base::Duration timeout);

}  // namespace fo::fleet
