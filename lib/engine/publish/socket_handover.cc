#include "engine/publish/socket_handover.h"

#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "base/error.h"
#include "net/socket_handover.h"

namespace fo::engine {
namespace {

using base::Deadline;
using base::UniqueFd;
using boost::asio::awaitable;

// The timeout of one taker, so that one that hangs leaves time for another.
constexpr base::Duration kTakerTimeout = std::chrono::seconds(5);

// Removes the socket of a killed giver. A live giver holds the lock beside the socket.
void remove_dead_offer(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  try {
    if (os::try_lock_path(path + ".lock")) ::unlink(path.c_str());
  } catch (const base::Error&) {  // a leftover socket does no harm
  }
}

}  // namespace

awaitable<bool> offer_sockets(os::ServerSocket server, PublishedSockets& sockets,
                              Deadline deadline) {
  std::vector<int> fds{sockets.listener.get()};
  for (const UniqueFd& client : sockets.clients) fds.push_back(client.get());
  const bool given =
      co_await net::give_sockets(server.listener.get(), fds, deadline, kTakerTimeout);
  if (given) sockets = {};
  co_return given;
}

awaitable<PublishedSockets> take_sockets(std::string path, Deadline deadline) {
  net::ReceivedSockets received = co_await net::receive_sockets(path, deadline);
  if (received.sockets.empty()) {
    remove_dead_offer(path);
    co_return PublishedSockets{};
  }
  const bool ours = co_await net::confirm_sockets(received, deadline);
  if (!ours) co_return PublishedSockets{};
  std::vector<UniqueFd>& fds = received.sockets;
  PublishedSockets taken;
  taken.listener = std::move(fds.front());
  taken.clients.assign(std::make_move_iterator(fds.begin() + 1),
                       std::make_move_iterator(fds.end()));
  co_return taken;
}

}  // namespace fo::engine
