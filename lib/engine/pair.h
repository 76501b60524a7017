// The engines that share a lock, from outside: where each reports its state, which one is active,
// and how to request a switchover.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "lock/lock_uri.h"

namespace fo::engine {

/// The socket on which the active engine offers its published sockets to the next one: `<lock
/// path>.handover`.
std::string handover_path(const lock::LockUri& lock);

/// The status sockets beside the lock, sorted by name. Throws kNotPermitted.
std::vector<std::string> find_status_sockets(const lock::LockUri& lock);

/// Whether an engine other than `id` reports that it is in standby.
boost::asio::awaitable<bool> has_standby(lock::LockUri lock, std::string id);

/// The status of a lock, its engines and its memory servers.
struct PairStatus {
  /// One JSON object: lock, holder, generation, engines (the status of each), gms.
  std::string json;
  /// The same as text.
  std::string text;
  /// True if an engine is active.
  bool active = false;
};
PairStatus read_pair(const lock::LockUri& lock);

/// Requests a switchover from the active engine, and waits until another engine is active; returns
/// its id. Throws kUnavailable if no engine is active, kTryAgain if the active one refuses, as it
/// does while no other is in standby, or if the switchover is not complete by `deadline`.
std::string switch_over(const lock::LockUri& lock, const base::Deadline& deadline);

}  // namespace fo::engine
