// The router's admin socket: an HTTP server on a Unix socket that only our own user and root can
// use, and its client, for fo-route ctl.
//
//     GET  /state                          the workers, their sets, health and load
//     GET  /requests                       the requests in flight: ids, sizes and ages, never text
//     POST /drain?id=ID                    no new requests for the worker; /undrain?id=ID
//     POST /weight?model=M&card=C&weight=N the weight of a set
//     POST /level?level=auto|0..4          the level of degradation
//     POST /kill?id=ID                     ends a request
//     POST /reload                         reads the configuration again
//     GET  /settings                       what the next router continues with; see settings.h
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "fleet/admin_socket.h"
#include "http/pages.h"

namespace fo::route {

/// The actions behind the pages. Each `false` or nullopt is answered with 404.
struct AdminActions {
  std::function<std::string()> state;
  std::function<std::string()> requests;
  std::function<bool(const std::string& id, bool is_drained)> drain;
  std::function<bool(const std::string& model, const std::string& card, double weight)> weight;
  /// nullopt: automatic.
  std::function<void(std::optional<std::size_t> level)> level;
  std::function<bool(const std::string& id)> kill;
  /// Throws base::Error, which is answered with 409.
  std::function<void()> reload;
  std::function<std::string()> settings;
};

std::vector<http::Page> admin_pages(AdminActions actions);

/// $XDG_RUNTIME_DIR/fo/route.sock; for root, and without that variable, /run/fo/route.sock.
std::string default_admin_path();

using AdminAnswer = fleet::AdminAnswer;
/// Sends one request to the router behind the socket. Throws kUnavailable, kTryAgain and
/// kNotPermitted if it does not answer, and kUsage for what it refuses as invalid.
AdminAnswer ask_router(const std::string& socket_path, std::string_view method,
                       const std::string& target, base::Duration timeout);

}  // namespace fo::route
