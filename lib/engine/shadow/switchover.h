// The planned failover: the active engine hands over to a standby on request. It can be undone
// until the engine sleeps, and loses no request.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "engine/shadow/parts.h"
#include "engine/shadow/shadow.h"

namespace fo::engine {

class Switchover {
 public:
  /// `parts` may be constructed later than this object, but before its first call.
  Switchover(const ShadowOptions& options, const Parts& parts) : options_(options), parts_(parts) {}

  /// Requests a switchover. Returns a JSON object of this engine's id and generation. Throws
  /// kTryAgain if the engine is not active, or no other engine could take over.
  boost::asio::awaitable<std::string> request();
  /// Whether a switchover was requested and is not complete.
  [[nodiscard]] bool is_under_way() const { return is_under_way_; }

  /// Waits until a switchover was requested, clients are drained, and another engine can take over.
  /// Undoes a switchover that is not possible. Throws Ended, and what undoing it throws.
  boost::asio::awaitable<void> until_begun();
  /// Puts the engine to sleep, releases the lock, and waits until another engine has it, or no
  /// engine is left that could take over. Throws what the driver and the lock throw, Ended.
  boost::asio::awaitable<void> hand_over();

 private:
  // False if the switchover was undone.
  boost::asio::awaitable<bool> prepare();
  // The reason why no other engine could take over now; empty if one could.
  boost::asio::awaitable<std::string> find_obstacle();
  boost::asio::awaitable<void> until_taken_over();

  const ShadowOptions& options_;
  Parts parts_;
  bool is_under_way_ = false;
};

}  // namespace fo::engine
