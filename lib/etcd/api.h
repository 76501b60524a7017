// Requests to and answers from etcd's JSON gateway (etcd 3.4 and later), as text. Pure. The gateway
// encodes keys and values in base64 and 64-bit numbers as strings, and leaves out members that are
// false, 0 or empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/strong.h"
#include "base/units.h"

namespace fo::etcd {

/// Maximum size of an answer.
inline constexpr base::ByteCount kMaxAnswerBytes = 16 * base::kMiB;
/// Maximum length of a watch message; etcd splits long messages into fragments of 2 MiB.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{8} * 1024 * 1024;

/// A POST request to `path` of a server.
struct Request {
  std::string path;
  std::string body;
};

/// A lease's id; 0: none.
using LeaseId = std::uint64_t;
/// etcd's revision: the store increments it with each change. A key records the revisions of its
/// creation and last change. 0: none.
using Revision = std::uint64_t;

/// One key, or the keys from `begin` up to but not including `end`.
struct KeyRange {
  std::string begin;
  /// Empty: only the key `begin`.
  std::string end = {};
  friend bool operator==(const KeyRange&, const KeyRange&) = default;
};
/// All keys that begin with `prefix`; all keys if it is empty.
KeyRange keys_with_prefix(std::string_view prefix);

struct KeyValue {
  std::string key;
  std::string value;
  Revision created = 0;
  Revision modified = 0;
  LeaseId lease = 0;
  friend bool operator==(const KeyValue&, const KeyValue&) = default;
};

// --- Operations, alone or in a transaction.

struct Range {
  KeyRange keys;
  /// The revision to read at; 0: the current one.
  Revision revision = 0;
  /// Maximum number of keys; 0: no limit.
  std::uint64_t limit = 0;
  bool keys_only = false;
  enum class Order { kByKey, kOldestFirst, kNewestFirst };
  /// Sort by key or by the revision of creation.
  Order order = Order::kByKey;
  /// Only keys created at this revision or earlier; 0: all.
  Revision created_until = 0;
};
struct Put {
  std::string key;
  std::string value;
  /// The lease whose end deletes the key; 0: none.
  LeaseId lease = 0;
};
struct Delete {
  KeyRange keys;
};
using Operation = std::variant<Range, Put, Delete>;

struct Compare {
  enum class Target { kCreated, kModified, kLease };
  enum class Relation { kEqual, kGreater };
  /// The comparison with a range is true if it is true for each of its keys.
  KeyRange keys;
  Target target = Target::kCreated;
  Relation relation = Relation::kEqual;
  /// A missing key compares as created and modified at revision 0.
  std::uint64_t number = 0;
};
struct Transaction {
  /// `then` is executed if all of them are true, otherwise `otherwise`.
  std::vector<Compare> compares;
  std::vector<Operation> then;
  std::vector<Operation> otherwise;
};

// --- Requests and their answers. The decode_* functions throw kProtocol for an invalid answer.

/// Throws kConfig for a password that is not UTF-8.
Request authenticate(const std::string& user, const std::string& password);
/// Returns the value for the Authorization header.
std::string decode_token(std::string_view answer);

struct Found {
  /// The revision of the answer.
  Revision revision = 0;
  std::vector<KeyValue> keys;
  /// True if the limit left out keys.
  bool has_more = false;
};
Request range(const Range& range);
/// Also throws kProtocol for more keys than `limit`, unless it is 0.
Found decode_range(std::string_view answer, std::uint64_t limit);

struct Outcome {
  Revision revision = 0;
  bool succeeded = false;
  /// The result of one operation: the keys that a Range found, or the number of keys that a Delete
  /// deleted.
  struct Result {
    std::vector<KeyValue> keys;
    std::uint64_t deleted = 0;
  };
  std::vector<Result> results;
};
Request transaction(const Transaction& transaction);
Outcome decode_transaction(std::string_view answer);
/// The keys that operation `index` found. Throws kProtocol if the answer has no such result.
const std::vector<KeyValue>& keys_in(const Outcome& outcome, std::size_t index);

/// Requests a lease with the id `lease`; `ttl` is in whole seconds.
Request grant_lease(LeaseId lease, base::Duration ttl);
/// Returns the granted time to live.
base::Duration decode_grant_lease(std::string_view answer, LeaseId lease);

Request keep_alive(LeaseId lease);
/// Returns the time to live from now on; nullopt if the lease does not exist.
std::optional<base::Duration> decode_keep_alive(std::string_view answer, LeaseId lease);

Request revoke_lease(LeaseId lease);
/// Returns the revision of the revocation.
Revision decode_revoke_lease(std::string_view answer);

// --- Watches.

struct Watch {
  KeyRange keys;
  /// The revision of the first changes to report; 0: from now on.
  Revision from = 0;
  bool deletions_only = false;
};
/// The answer is an endless stream with one message per line.
Request watch(const Watch& watch);

struct Event {
  enum class Kind { kPut, kDelete };
  Kind kind = Kind::kPut;
  /// For a deletion only the key and, as `modified`, the revision of the deletion.
  KeyValue key;
};
struct WatchMessage {
  Revision revision = 0;
  /// The events in the order in which they happened.
  std::vector<Event> events;
  /// True for the first message of a watch, which has no events.
  bool is_created = false;
  /// True if the next message may contain more events of the same revision.
  bool is_fragment = false;
  /// If not 0, the earliest revision that etcd still has; earlier changes are lost, and the watch
  /// ends.
  Revision compacted = 0;
  /// True if the watch has ended, for `reason`.
  bool is_ended = false;
  std::string reason;
};
WatchMessage decode_watch(std::string_view line);

// --- Refusals.

struct Refusal {
  enum class Kind {
    kLeaseNotFound,
    kLeaseExists,
    kCompacted,         // the requested revision was compacted
    kNotAuthenticated,  // authenticate again with the password
    kNoUsers,           // authentication is disabled: send no token
    kNotPermitted,
    kTransient,
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string reason;
};
/// The refusal in an answer; nullopt if it contains none.
std::optional<Refusal> find_refusal(int http_status, std::string_view answer);

}  // namespace fo::etcd
