// A client of the server, from its connection to its end, and the log lines that clients cause.
#pragma once

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "gms/protocol/server_model.h"
#include "gms/server/connection.h"
#include "loop/event.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/socket/unix_socket.h"

namespace fo::gms {

/// A client is disconnected after this time if it sends nothing, stops within a request, or does
/// not read its answer.
inline constexpr base::Duration kPeerTimeout = std::chrono::seconds(30);

struct Session {
  Session(boost::asio::io_context& io, base::UniqueFd socket,
          const os::PeerCredentials& credentials, UnreadAnswers& unread)
      : connection(io, std::move(socket), unread), changed(io.get_executor()), peer(credentials) {}

  /// Identifies the session in log lines; `server` is the label of its server.
  [[nodiscard]] std::string label(const std::string& server) const {
    return fmt::format("{} session={} pid={} uid={}", server, id, peer.pid, peer.uid);
  }

  Connection connection;
  /// Notified when the session is granted its lock, or its client disconnects.
  loop::Event changed;
  SessionId id = 0;
  os::PeerCredentials peer;
  /// When it requested its lock.
  std::chrono::steady_clock::time_point arrived{};
};
using SessionPtr = std::shared_ptr<Session>;

/// Waits until `deadline`, or until the session changes, which includes that its client
/// disconnects.
boost::asio::awaitable<void> wait_for_change(SessionPtr session, base::Deadline deadline);

/// Log lines that clients can cause at will: limited per client, and for all clients together.
class ClientLog {
 public:
  template <typename... Args>
  void write(const os::PeerCredentials& peer, os::LogLevel level,
             fmt::format_string<Args...> format, Args&&... args) {
    limit_.log(level, fmt::format("pid={} uid={}", peer.pid, peer.uid),
               fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  os::LogLimit limit_;
};

}  // namespace fo::gms
