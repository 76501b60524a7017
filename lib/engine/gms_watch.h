// The memory servers that an engine's weights lie in, as its supervisor sees them: which layout the
// engine sleeps on, whether it could wake on it, and, while it is awake, whether they are still
// there. Touches no GPU.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"

namespace fo::engine {

struct GmsPlace {
  std::string socket;
  int device = 0;
  std::string tag;
};

class GmsWatch {
 public:
  /// `on_change(i, up)` is told of connections that come and go, `on_lost` once of one that did not
  /// come back with the same layout within `grace` (kUnavailable). Both on the loop.
  GmsWatch(boost::asio::any_io_executor executor, std::vector<GmsPlace> places,
           base::Duration grace, std::function<void(std::size_t, bool)> on_change,
           std::function<void(base::Error)> on_lost);
  /// Ends what still runs; a thread that waits for a server ends within a second.
  ~GmsWatch();
  GmsWatch(const GmsWatch&) = delete;
  GmsWatch& operator=(const GmsWatch&) = delete;

  /// Learns the layouts that the engine sleeps on. Throws as hold().
  boost::asio::awaitable<void> learn(base::Deadline deadline);

  /// Takes a reader's lock of each layout and keeps it: no writer comes in between. A server that
  /// is away is waited for, as the lock is. Throws kUnavailable (no server in time), kTryAgain (no
  /// lock in time) or kBadData (another layout than was learned; where nothing was learned, any
  /// will do, and is learned).
  boost::asio::awaitable<void> hold(base::Deadline deadline);

  /// Whether an engine could take the locks now, beside those that are held: returns when it could,
  /// and throws as hold() otherwise, at once where a server is away.
  boost::asio::awaitable<void> check(base::Deadline deadline);

  /// Gives the locks up. The layouts stay known.
  void let_go();
  /// What was learned no longer counts.
  void forget();

  /// Of place `i`; empty while it is not known.
  [[nodiscard]] const std::string& layout_hash(std::size_t i) const;
  [[nodiscard]] bool is_up(std::size_t i) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::engine
