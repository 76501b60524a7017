// The admin socket of a daemon: an HTTP server on a Unix socket that only this user and root can
// use. This file has its default path, its folder, its limits, and its client.
#pragma once

#include <string>
#include <string_view>

#include "base/units.h"
#include "http/server.h"

namespace fo::fleet {

/// $XDG_RUNTIME_DIR/fo/NAME; /run/fo/NAME for root, or if that variable is not set.
std::string default_admin_path(std::string_view name);

/// Creates the folder of the socket with mode 0700 unless it exists. Throws kCannotCreate, and
/// kNotPermitted for a folder that another user owns or may write to. A sticky folder, such as
/// /tmp, may be writable by others.
void prepare_admin_folder(const std::string& socket_path);

/// The limits of the server, which refuses other users even if the mode of the socket's file was
/// changed.
http::ServerLimits admin_limits();

struct AdminAnswer {
  bool is_found = false;
  /// The body of an answer, or the message of an error.
  std::string text;
};
/// Sends one request to the daemon behind the socket; `daemon` is its name in messages, such as
/// "the router". The answer is found if the status is 200, and not found if it is 404. Throws
/// kUnavailable, kTryAgain and kNotPermitted if the daemon does not answer, kUsage if it answers
/// 400, kTryAgain if it answers 503, and kConfig for any other status.
AdminAnswer send_admin_request(std::string_view daemon, const std::string& socket_path,
                               std::string_view method, const std::string& target,
                               base::Duration timeout);

}  // namespace fo::fleet
