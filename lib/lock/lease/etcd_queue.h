// The requests and answers of a lock that consists of keys in etcd; pure.
//
// A lock KEY is a queue of keys "KEY/<lease in hex>", of which the oldest has the lock; etcdctl's
// `lock` queues in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etcd/api.h"

namespace fo::lock {

/// The maximum number of keys in a listed queue.
inline constexpr std::size_t kMaxQueueListed = 1000;

/// The position of a contender in the queue.
struct QueuePosition {
  /// The key of the lock.
  std::string key;
  etcd::LeaseId lease = 0;
  /// 0 while it is unknown.
  etcd::Revision created = 0;

  /// The name of its key.
  [[nodiscard]] std::string name() const;
};

/// The value of a contender's key.
struct Contender {
  std::string id;
  std::string host;
  std::uint64_t pid = 0;
  /// In the form of format_time; empty while it waits.
  std::string granted_at;
  friend bool operator==(const Contender&, const Contender&) = default;
};

// The read_* functions throw kProtocol for an answer to another request.

/// Creates the key of a position in the queue; an existing key is unchanged.
etcd::Transaction enter(const QueuePosition& position, const Contender& who);
/// The revision at which the key was created.
etcd::Revision read_enter(const etcd::Outcome& outcome, const QueuePosition& position);

/// Records the grant in the contender's key if that is the oldest.
etcd::Transaction claim(const QueuePosition& position, const Contender& who);
struct ClaimResult {
  enum class State { kGranted, kWaiting, kGone };
  State state = State::kGone;
  /// While waiting: the name of the key before ours, and the revision of that state.
  std::string predecessor;
  etcd::Revision as_of = 0;
};
ClaimResult read_claim(const etcd::Outcome& outcome, const QueuePosition& position);

/// Watches for the deletion of the predecessor's key, which ends the wait.
etcd::Watch watch_deletion(const ClaimResult& result);

/// Succeeds while the key exists and was never deleted.
etcd::Transaction check_position(const QueuePosition& position);

etcd::Range list(const std::string& key);
struct Listed {
  std::string name;
  etcd::Revision created = 0;
  /// 0: the key has no lease, unlike a contender's, and stays until it is deleted.
  etcd::LeaseId lease = 0;
  /// Empty for a key that another program has created.
  Contender who;
};
/// The oldest first.
std::vector<Listed> read_list(const etcd::Found& found);

}  // namespace fo::lock
