// The handover of sockets to another process of the same user over a Unix socket. All or nothing:
// if either process ends before the receiver has confirmed, the giver keeps everything. Until then
// both processes have the sockets, so that no client of a listening one is refused.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"

namespace fo::net {

/// Offers `sockets`, at least one, to the processes that connect to `listener`, a listening,
/// non-blocking Unix socket, one after the other. True once a process of our user or of root has
/// confirmed that it has all of them; false at `deadline`. A process that does not answer within
/// `receiver_timeout` is disconnected; with nullopt, the others wait until it ends. The caller
/// keeps all descriptors open meanwhile. Throws Error(kOsError).
boost::asio::awaitable<bool> give_sockets(int listener, std::span<const int> sockets,
                                          base::Deadline deadline,
                                          std::optional<base::Duration> receiver_timeout);

/// Received sockets, which the giver has as well until confirm_sockets().
struct ReceivedSockets {
  /// In the order of give_sockets(). Empty if there was no offer, or the giver closed the
  /// connection before it had sent everything.
  std::vector<base::UniqueFd> sockets;
  base::UniqueFd giver;
};

/// Receives the sockets offered at `path`. Throws kUsage for the path, kNotPermitted for another
/// user's socket, kTryAgain at the deadline, kProtocol, and kOsError if this process cannot have so
/// many descriptors.
boost::asio::awaitable<ReceivedSockets> receive_sockets(std::string path, base::Deadline deadline);

/// Asks the giver to leave the sockets to this process. True: they are ours. False: the giver has
/// closed the connection, because it has ended or refuses. Throws kTryAgain at the deadline.
boost::asio::awaitable<bool> confirm_sockets(const ReceivedSockets& received,
                                             base::Deadline deadline);

}  // namespace fo::net
