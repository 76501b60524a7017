// A lock in etcd as keys: what is asked of them, and what the answers say; pure.
//
// A lock KEY is a queue of keys "KEY/<lease in hex>", the oldest of which has it; etcdctl's `lock`
// queues in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etcd/api.h"

namespace fo::lock {

/// So much of a queue is listed.
inline constexpr std::size_t kMaxQueueListed = 1000;

/// Where one contender stands.
struct Place {
  /// The lock's.
  std::string key;
  etcd::LeaseId lease = 0;
  /// 0 while that is not known.
  etcd::Revision created = 0;

  /// The name of its key.
  [[nodiscard]] std::string name() const;
};

/// Who a contender is, as its key says.
struct Contender {
  std::string id;
  std::string host;
  std::uint64_t pid = 0;
  /// As format_time writes it; empty while it waits.
  std::string granted_at;
  friend bool operator==(const Contender&, const Contender&) = default;
};

// The read_* throw kProtocol for what is no answer to theirs.

/// Creates the key of a place in the queue; one that is there already stays as it is.
etcd::Transaction enter(const Place& place, const Contender& who);
/// When the key was created.
etcd::Revision read_enter(const etcd::Outcome& outcome, const Place& place);

/// Says so in the own key where that is the oldest.
etcd::Transaction claim(const Place& place, const Contender& who);
struct Turn {
  enum class State { kGranted, kWaiting, kGone };
  State state = State::kGone;
  /// While waiting: the name of the key in front of ours, and as of when.
  std::string predecessor;
  etcd::Revision as_of = 0;
};
Turn read_claim(const etcd::Outcome& outcome, const Place& place);

/// What ends a wait: that the predecessor's key is deleted.
etcd::Watch watch_deletion(const Turn& turn);

/// Succeeds while the key is still there, never having been away.
etcd::Transaction look(const Place& place);

etcd::Range list(const std::string& key);
struct Listed {
  std::string name;
  etcd::Revision created = 0;
  /// 0: the key has no lease, unlike a contender's, and stays until it is deleted.
  etcd::LeaseId lease = 0;
  /// Empty for a key that is not a contender of ours.
  Contender who;
};
/// The oldest first.
std::vector<Listed> read_list(const etcd::Found& found);

}  // namespace fo::lock
