// The handover of the published address to another fo-shadow: the listener and the clients'
// connections, all or nothing (net/socket_handover.h).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "os/socket/server_socket.h"

namespace fo::engine {

/// The sockets that a publisher leaves to the next: the listener, whose queue holds the clients
/// that connected meanwhile, and the clients' connections that were between two requests.
struct PublishedSockets {
  base::UniqueFd listener;
  std::vector<base::UniqueFd> clients;
};

/// Offers `sockets`, which has a listener, on `server` until a process of our user or root has
/// taken all of them (true; `sockets` is empty then), or until `deadline` (false).
boost::asio::awaitable<bool> offer_sockets(os::ServerSocket server, PublishedSockets& sockets,
                                           base::Deadline deadline);

/// Takes the sockets offered at `path`, and removes the offer of a dead process. Returns nothing if
/// there is no offer, or if the giver closes the connection before it has handed over everything.
/// Throws what net::receive_sockets throws.
boost::asio::awaitable<PublishedSockets> take_sockets(std::string path, base::Deadline deadline);

}  // namespace fo::engine
