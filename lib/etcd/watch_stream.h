// Decodes the messages of a watch over successive connections so that each event is returned
// exactly once. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "etcd/api.h"
#include "net/line_buffer.h"

namespace fo::etcd {

class WatchStream {
 public:
  explicit WatchStream(Watch watch);
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  /// Returns the request for a new connection, which continues where the last one failed.
  Request begin();
  /// Adds bytes received on the current connection.
  void append(std::string_view bytes) { lines_.append(bytes); }
  /// Returns the next complete message, without events that were returned before; nullopt if it is
  /// incomplete. Throws kProtocol for an invalid message, one longer than kMaxMessageBytes, and one
  /// whose events are not in the order of their revisions.
  std::optional<WatchMessage> next();

  /// The first revision of which an event may not have been returned; 0 if unknown.
  [[nodiscard]] Revision next_revision() const { return watch_.from; }

 private:
  // Removes events that were returned before.
  void note(WatchMessage& message);
  void go_to(Revision revision);

  Watch watch_;
  net::LineBuffer lines_;
  // The number of events of revision `watch_.from` that were returned already, and how many of
  // these the current connection has yet to repeat: a failed connection may have delivered only
  // part of a revision.
  std::size_t returned_ = 0;
  std::size_t repeated_ = 0;
};

}  // namespace fo::etcd
