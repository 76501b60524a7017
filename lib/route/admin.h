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
//     GET  /settings?hold=1                the same on one line. The answer does not end, and while
//                                          it is read, a change is answered with 503
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/units.h"
#include "fleet/admin_socket.h"
#include "http/connection.h"
#include "http/pages.h"

namespace fo::route {

/// The actions behind the pages. Each `false` or nullopt is answered with 404.
struct AdminActions {
  std::function<std::string()> state;
  std::function<std::string()> requests;
  std::function<bool(const std::string& id, bool is_drained)> drain;
  /// This one and reload throw base::Error. The answer is 503 if a later try may succeed, else 409.
  std::function<boost::asio::awaitable<bool>(std::string model, std::string card, double weight)>
      weight;
  /// nullopt: automatic.
  std::function<void(std::optional<std::size_t> level)> level;
  std::function<bool(const std::string& id)> kill;
  std::function<void()> reload;
  std::function<std::string()> settings;
};

/// Prevents an operator's changes of the settings after the next router has queried them, because
/// they would be lost when it takes over. All calls are made on one event loop.
class SettingsHold {
 public:
  explicit SettingsHold(const boost::asio::any_io_executor& executor);

  /// True if a next router is connected for the settings, or has the sockets.
  [[nodiscard]] bool is_held() const;
  /// The next router has the sockets: later changes here would not reach it.
  void hand_over();
  /// For the pages: a connection of a next router, which may outlive this object.
  class Holder;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// `hold` outlives the pages.
std::vector<http::Page> admin_pages(AdminActions actions, const SettingsHold& hold);

/// $XDG_RUNTIME_DIR/fo/route.sock; for root, and without that variable, /run/fo/route.sock.
std::string default_admin_path();

using AdminAnswer = fleet::AdminAnswer;
/// Sends one request to the router behind the socket, and repeats it for up to `timeout` while the
/// router answers 503: another router is taking over, which then has the socket, or the registry
/// can't be reached. Throws what fleet::send_admin_request throws; kTryAgain after `timeout`.
AdminAnswer send_to_router(const std::string& socket_path, std::string_view method,
                           const std::string& target, base::Duration timeout);

/// The settings of a running router, as JSON. The router refuses its operator's changes while the
/// connection is open.
struct HeldSettings {
  std::string text;
  std::unique_ptr<http::Connection> connection;
};
/// Queries the settings of the router at the socket. Throws what http::Connection throws, and
/// kProtocol for a status other than 200 or for settings of over 16 MiB.
boost::asio::awaitable<HeldSettings> hold_settings(std::string socket_path,
                                                   base::Deadline deadline);

}  // namespace fo::route
