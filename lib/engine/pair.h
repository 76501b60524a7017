// The engines that share a lock, as seen from outside: where each tells its state, who is active,
// and how the active one is asked to hand over.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "lock/lock_uri.h"

namespace fo::engine {

/// Where the active engine leaves its published sockets to the next: `<lock path>.handover`.
std::string handover_path(const lock::LockUri& lock);

/// The status sockets beside the lock, in the order of their names. Throws kNotPermitted.
std::vector<std::string> find_status_sockets(const lock::LockUri& lock);

/// Whether an engine other than `id` says that it is in standby.
boost::asio::awaitable<bool> somebody_stands_by(lock::LockUri lock, std::string id);

/// What the engines of a lock say of themselves, and the lock and the memory servers.
struct PairStatus {
  /// One JSON object: lock, holder, generation, engines (as each tells), gms.
  std::string json;
  /// The same for people.
  std::string text;
  /// Somebody is active.
  bool active = false;
};
PairStatus read_pair(const lock::LockUri& lock);

/// Asks the active engine to hand over, and waits until another is active. Returns that one's id.
/// Throws kUnavailable when nobody is active, kTryAgain when it refuses, as it does while nobody
/// stands by, or when it is not done by `deadline`.
std::string switch_over(const lock::LockUri& lock, const base::Deadline& deadline);

}  // namespace fo::engine
