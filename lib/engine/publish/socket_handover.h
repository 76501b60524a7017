// How one process leaves the published address to another of the same user: the listener and the
// clients' connections, sent over a Unix socket. All or nothing: whoever dies or stops on the way
// leaves everything with the giver.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::engine {

/// What one publisher leaves to the next: the listener, whose queue holds the clients that came in
/// between, and the clients' connections that were between two requests.
struct PublishedSockets {
  base::UniqueFd listener;
  std::vector<base::UniqueFd> clients;
};

/// Offers `sockets`, which has a listener, on a Unix socket at `path` until a process of our user,
/// or root's, took all of them (true; `sockets` is empty then) or until `deadline` (false). Throws
/// what os::open_server_socket throws.
boost::asio::awaitable<bool> offer_sockets(std::string path, PublishedSockets& sockets,
                                           base::Deadline deadline);

/// Takes what is offered at `path`, and removes what a dead process offered there; nothing where
/// nobody offers, or where the giver went away
/// before all of it was ours. Throws kUsage for the path, kNotPermitted for somebody else's socket,
/// kTryAgain at the deadline, kProtocol, and kOsError when we have no room for so many descriptors.
boost::asio::awaitable<PublishedSockets> take_sockets(std::string path, base::Deadline deadline);

}  // namespace fo::engine
