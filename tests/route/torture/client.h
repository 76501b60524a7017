// A client that keeps its connection, and reads an answer while it arrives.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "http/connection.h"

namespace fo::torture {

struct Received {
  http::ResponseHead head = {};
  std::string body = {};
};

/// The times of the last token before an answer was resumed, and of the resume.
using OnResumed =
    std::function<void(base::Deadline::Clock::time_point, base::Deadline::Clock::time_point)>;

/// Sends a POST, and reads the answer into `received`, which has the part that arrived if this
/// fails. Opens a connection to `origin` unless `connection` is alive. Throws what http::Connection
/// throws.
inline boost::asio::awaitable<void> ask(std::unique_ptr<http::Connection>& connection,
                                        http::Origin origin, std::string target, std::string body,
                                        base::Deadline deadline, Received& received,
                                        OnResumed on_resumed) {
  using Clock = base::Deadline::Clock;
  http::RequestHead head;
  head.method = "POST";
  head.target = std::move(target);
  head.headers.emplace_back("Content-Type", "application/json");
  // After a stream that ended with an error, the server may close the connection just when it is
  // used again.
  for (const bool is_fresh : {false, true}) {
    if (is_fresh || !connection || !connection->is_alive()) {
      connection = co_await http::Connection::open(origin, deadline, "a client");
    }
    const bool may_repeat = connection->is_reused();
    try {
      co_await connection->send(head, body, deadline);
      received.head = co_await connection->read_head(deadline);
      break;
    } catch (const base::Error&) {
      if (!may_repeat || connection->progress() == http::Connection::Progress::kAnswered) throw;
    }
  }
  std::array<char, 4096> space;
  Clock::time_point last = Clock::now();
  for (;;) {
    const std::size_t count = co_await connection->read_some(space, deadline);
    if (count == 0) co_return;
    const std::string_view piece(space.data(), count);
    const Clock::time_point now = Clock::now();
    if (piece.find(": fo-route: resumed") != piece.npos) on_resumed(last, now);
    if (piece.find("data:") != piece.npos) last = now;
    received.body += piece;
  }
}

}  // namespace fo::torture
