// The supervisor's view of the memory servers with an engine's weights: the layout that the engine
// sleeps on, whether the engine could wake with it, and whether the servers still run while it is
// awake. Uses no GPU.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/strong.h"
#include "gms/protocol/types.h"

namespace fo::engine {

struct GmsPlace {
  std::string socket;
  base::DeviceOrdinal device;
  std::string tag;
};

class GmsWatch {
 public:
  /// `on_change(i, up)` is called when a connection is made or lost; `on_lost` once (kUnavailable),
  /// when a server has not reconnected with the same layout within `grace`. Both run on the loop.
  GmsWatch(boost::asio::any_io_executor executor, std::vector<GmsPlace> places,
           base::Duration grace, std::function<void(std::size_t, bool)> on_change,
           std::function<void(base::Error)> on_lost);
  /// Ends all operations; a thread that waits for a server ends within a second.
  ~GmsWatch();
  GmsWatch(const GmsWatch&) = delete;
  GmsWatch& operator=(const GmsWatch&) = delete;

  /// Records the layouts that the engine sleeps on. Throws what hold() throws.
  boost::asio::awaitable<void> learn(base::Deadline deadline);

  /// Acquires a reader's lock of each layout and keeps it, so that no writer can get one. Waits for
  /// an unreachable server as for the lock. Throws kUnavailable (no server in time), kTryAgain (no
  /// lock in time) or kBadData (another layout than the recorded one; if none is recorded, any
  /// layout is accepted and recorded).
  boost::asio::awaitable<void> hold(base::Deadline deadline);

  /// Checks whether another engine could acquire the locks now, in addition to the held ones.
  /// Throws what hold() throws if it could not; an unreachable server fails the check at once.
  boost::asio::awaitable<void> check(base::Deadline deadline);

  /// Releases the locks. The layouts stay recorded.
  void release();
  /// Discards the recorded layouts.
  void forget();

  /// The layout hash of place `i`; empty if it is unknown.
  [[nodiscard]] const gms::LayoutHash& layout_hash(std::size_t i) const;
  [[nodiscard]] bool is_up(std::size_t i) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::engine
