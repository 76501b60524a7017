// The messages of a watch in the bytes of one connection after the other, so that no event is told
// twice or left out; pure.
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

  /// What to ask for on a new connection, which goes on where the last one broke off.
  Request begin();
  /// What has come on it.
  void append(std::string_view bytes) { lines_.append(bytes); }
  /// The next message that is there as a whole, without events that were told before. Throws
  /// kProtocol for what is none, or longer than kMaxMessageBytes.
  std::optional<WatchMessage> next();

  /// The first revision that was not told as a whole; 0 where that is not known yet.
  [[nodiscard]] Revision next_revision() const { return watch_.from; }

 private:
  // Takes out of it what was told before.
  void note(WatchMessage& message);
  void go_to(Revision revision);

  Watch watch_;
  net::LineBuffer lines_;
  // Events of revision `watch_.from` that were told already, and those of them that this connection
  // has still to tell again: a broken connection may leave a revision half told.
  std::size_t told_ = 0;
  std::size_t repeated_ = 0;
};

}  // namespace fo::etcd
