// The listening sockets of a router. The next router takes them over while both accept clients, so
// that no client is refused. They are offered on a Unix socket beside the admin socket, at the same
// path with ".next" appended. That socket is handed over as well, so that several takeovers happen
// one after the other. The lock of the admin socket protects both paths, and is handed over, too.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "http/server.h"
#include "loop/event.h"
#include "net/socket_handover.h"
#include "os/socket/server_socket.h"

namespace fo::route {

class Listeners {
 public:
  Listeners(boost::asio::any_io_executor executor, std::string admin_path);
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  /// Creates the sockets at the admin path. Throws what os::open_server_socket throws.
  void open();
  /// Receives the sockets of the router that runs at the admin path, or does as open() if none
  /// runs. Waits until `deadline` for one that is ending, or that hands its sockets to another
  /// process now. Throws what open() and net::receive_sockets throw.
  boost::asio::awaitable<void> take_over(base::Deadline deadline);
  /// Whether the running router's sockets were received.
  [[nodiscard]] bool has_received() const { return received_.giver.valid(); }

  /// The listening socket at "HOST:PORT": the running router's, or a new one; port 0 is always a
  /// new one. Throws what http::listen_tcp throws.
  http::Listener tcp(const std::string& address);

  /// Once clients are accepted: ends the running router, which finishes its requests. From then on
  /// the admin socket is ours.
  boost::asio::awaitable<void> own();
  /// The listening admin socket; after own().
  [[nodiscard]] base::UniqueFd admin() const;

  /// Offers the sockets to the next router until it has them and accepts clients. Then this process
  /// has none of them any more, except those that tcp() and admin() returned.
  boost::asio::awaitable<void> offer();
  /// Closes the TCP sockets, except one at the address `kept` (may be empty), and goes on to offer
  /// what is left. A router that has received the sockets goes on with all of them; another one
  /// opens new ones in place of those that were closed.
  void withdraw_tcp(const std::string& kept);

 private:
  void identify(std::vector<base::UniqueFd> sockets);
  boost::asio::awaitable<void> give(bool& is_given);
  boost::asio::awaitable<void> until_withdrawn();

  std::string admin_path_;
  std::string next_path_;
  net::ReceivedSockets received_;
  /// Received TCP sockets that tcp() has not returned yet.
  std::vector<base::UniqueFd> spare_;
  base::UniqueFd lock_;
  base::UniqueFd admin_;
  base::UniqueFd next_;
  std::vector<base::UniqueFd> tcp_;
  // Declared after the sockets: the names are removed before the sockets are closed, because then
  // another file could have their inode numbers.
  std::vector<os::OwnedPath> names_;
  bool is_withdrawn_ = false;
  loop::Event withdrawn_;
};

}  // namespace fo::route
