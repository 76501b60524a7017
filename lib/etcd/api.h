// What is asked of etcd's JSON gateway (etcd 3.4 and later) and what it answers, as text; pure.
// There keys and values are base64, 64-bit numbers are strings, and what is false, 0 or empty is
// left out.
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

/// The longest answer that is read.
inline constexpr base::ByteCount kMaxAnswerBytes = 16 * base::kMiB;
/// The longest line of a watch that is read: etcd cuts what it has to tell into pieces of 2 MiB.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{8} * 1024 * 1024;

/// What is posted to `path` of a server.
struct Request {
  std::string path;
  std::string body;
};

/// 0 stands for none.
using LeaseId = std::uint64_t;
/// What the store counts its changes by; of a key, when it was created or changed. 0 stands for
/// none.
using Revision = std::uint64_t;

/// One key, or those from `begin` up to `end`, which is not one of them.
struct KeyRange {
  std::string begin;
  /// Empty: only the key `begin`.
  std::string end = {};
  friend bool operator==(const KeyRange&, const KeyRange&) = default;
};
/// All keys that begin with `prefix`; with an empty one all keys.
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
  /// As of when; 0: now.
  Revision revision = 0;
  /// How many keys at most; 0: all.
  std::uint64_t limit = 0;
  bool keys_only = false;
  enum class Order { kByKey, kOldestFirst, kNewestFirst };
  /// By when keys were created; without it in the order of their names.
  Order order = Order::kByKey;
  /// Only keys that were created until then; 0: any.
  Revision created_until = 0;
};
struct Put {
  std::string key;
  std::string value;
  /// With whose end the key is deleted; 0: with none.
  LeaseId lease = 0;
};
struct Delete {
  KeyRange keys;
};
using Operation = std::variant<Range, Put, Delete>;

struct Compare {
  enum class Target { kCreated, kModified, kLease, kValue };
  enum class Relation { kEqual, kNotEqual, kGreater, kLess };
  /// True for a range when it is so for each of its keys.
  KeyRange keys;
  Target target = Target::kCreated;
  Relation relation = Relation::kEqual;
  /// 0 equals what a key that is not there was created and modified at.
  std::uint64_t number = 0;
  /// For kValue.
  std::string value = {};
};
struct Transaction {
  /// All of them have to be true.
  std::vector<Compare> compares;
  std::vector<Operation> then;
  std::vector<Operation> otherwise;
};

// --- Requests and their answers. The decode_* throw kProtocol for what is no answer to theirs.

/// Throws kConfig for a password that is not UTF-8.
Request authenticate(const std::string& user, const std::string& password);
/// What goes into the Authorization header.
std::string decode_token(std::string_view answer);

struct Found {
  /// As of when.
  Revision revision = 0;
  std::vector<KeyValue> keys;
  /// The limit left some out.
  bool has_more = false;
};
Request range(const Range& range);
/// More keys than `limit` are refused, unless it is 0.
Found decode_range(std::string_view answer, std::uint64_t limit);

struct Outcome {
  Revision revision = 0;
  bool succeeded = false;
  /// Of each operation: the keys that a Range found, or how many a Delete deleted.
  struct Result {
    std::vector<KeyValue> keys;
    std::uint64_t deleted = 0;
  };
  std::vector<Result> results;
};
Request transaction(const Transaction& transaction);
Outcome decode_transaction(std::string_view answer);
/// The keys that operation `index` found. Throws kProtocol where the answer has no such result.
const std::vector<KeyValue>& keys_in(const Outcome& outcome, std::size_t index);

/// `lease` is the name that the new one is to have; `ttl` in whole seconds.
Request grant_lease(LeaseId lease, base::Duration ttl);
/// The time that it has.
base::Duration decode_grant_lease(std::string_view answer, LeaseId lease);

Request keep_alive(LeaseId lease);
/// The time that the lease has from then on; nullopt for one that is gone.
std::optional<base::Duration> decode_keep_alive(std::string_view answer, LeaseId lease);

struct LeaseInfo {
  base::Duration left{};
  /// What it has after each keep-alive.
  base::Duration ttl{};
  /// That are deleted with it.
  std::vector<std::string> keys;
};
Request time_to_live(LeaseId lease);
/// nullopt for a lease that is gone.
std::optional<LeaseInfo> decode_time_to_live(std::string_view answer, LeaseId lease);

Request revoke_lease(LeaseId lease);
/// As of when it is gone.
Revision decode_revoke_lease(std::string_view answer);

// --- Watches.

struct Watch {
  KeyRange keys;
  /// The first revision of which changes are told; 0: from now on.
  Revision from = 0;
  bool deletions_only = false;
};
/// Answered by one line per message, without end.
Request watch(const Watch& watch);

struct Event {
  enum class Kind { kPut, kDelete };
  Kind kind = Kind::kPut;
  /// Of a deletion only the key and when it was deleted, as `modified`.
  KeyValue key;
};
struct WatchMessage {
  Revision revision = 0;
  /// In the order in which they happened.
  std::vector<Event> events;
  /// The watch begins: it has told nothing yet.
  bool is_created = false;
  /// More events of the same revision may follow in the next message.
  bool is_fragment = false;
  /// Not 0: what happened before is not known any more, and the watch ends.
  Revision compacted = 0;
  /// Nothing comes any more, for this reason.
  bool is_ended = false;
  std::string reason;
};
WatchMessage decode_watch(std::string_view line);

// --- Refusals.

struct Refusal {
  enum class Kind {
    kLeaseNotFound,
    kLeaseExists,
    kCompacted,         // the revision that was asked for is not known any more
    kNotAuthenticated,  // anew, by a password
    kNoUsers,           // etcd knows none: ask without
    kNotPermitted,
    kTransient,
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string reason;
};
/// What an answer refuses; nullopt for one that does not.
std::optional<Refusal> find_refusal(int http_status, std::string_view answer);

}  // namespace fo::etcd
