// What a lock asks of etcd's JSON gateway and what that answers, as text; pure. In it keys and
// values are base64, 64-bit numbers are strings, and what is false, 0 or empty is left out.
//
// A lock KEY is a queue of keys "KEY/<lease in hex>", the oldest of which has it; etcdctl's `lock`
// queues in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "base/units.h"

namespace fo::lock::etcd {

inline constexpr base::ByteCount kMostAnswerBytes = 4 * base::kMiB;
/// Of one line that a watch answers.
inline constexpr std::size_t kMostEventBytes = std::size_t{64} * 1024;
/// So much of a queue is listed.
inline constexpr std::size_t kMostListed = 1000;

/// What is posted to `path` of a server.
struct Request {
  std::string path;
  std::string body;
};

using LeaseId = std::uint64_t;
/// What the store counts its changes by; of a key, when it was created.
using Revision = std::uint64_t;

/// Where one contender stands.
struct Place {
  /// The lock's.
  std::string key;
  LeaseId lease = 0;
  /// 0 while that is not known.
  Revision created = 0;

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

// --- Requests. The decode_* below throw kProtocol for what is no answer to theirs.

/// Throws kConfig for a password that is no text.
Request authenticate(const std::string& user, const std::string& password);
/// What goes into the Authorization header.
std::string decode_token(std::string_view answer);

/// `lease` is the name that the new one is to have; `ttl` in whole seconds.
Request grant_lease(LeaseId lease, base::Duration ttl);
/// The time that it has.
base::Duration decode_grant_lease(std::string_view answer, LeaseId lease);

Request keep_alive(LeaseId lease);
/// The time that the lease has from then on; nullopt for one that is gone.
std::optional<base::Duration> decode_keep_alive(std::string_view answer, LeaseId lease);

Request revoke_lease(LeaseId lease);
/// As of when it is gone.
Revision decode_revoke_lease(std::string_view answer);

/// Creates the key of a place in the queue; one that is there already stays as it is.
Request enter(const Place& place, const Contender& who);
Revision decode_enter(std::string_view answer, const Place& place);

/// Says so in the own key where that is the oldest.
Request claim(const Place& place, const Contender& who);
struct Turn {
  enum class State { kGranted, kWaiting, kGone };
  State state = State::kGone;
  /// While waiting: the name of the key in front of ours, and as of when.
  std::string predecessor;
  Revision as_of = 0;
};
Turn decode_claim(std::string_view answer, const Place& place);

Request look(const Place& place);
/// Whether the key is still there, never having been away.
bool decode_look(std::string_view answer);

/// Answered by one line per event, without end.
Request watch_deletion(const std::string& name, Revision from);
struct Event {
  enum class Kind {
    kNothing,
    kDeleted,
    kCompacted,  // what happened since is not known any more
    kEnded,      // nothing comes any more
  };
  Kind kind = Kind::kNothing;
  std::string reason;
};
Event decode_event(std::string_view line);

Request list(const std::string& key);
struct Listed {
  std::string name;
  Revision created = 0;
  /// 0: the key has no lease, unlike a contender's, and stays until it is deleted.
  LeaseId lease = 0;
  /// All empty for one that somebody else queues by.
  Contender who;
};
/// The oldest first.
std::vector<Listed> decode_list(std::string_view answer);

// --- Refusals.

struct Refusal {
  enum class Kind {
    kLeaseNotFound,
    kLeaseExists,
    kNotAuthenticated,  // anew, by a password
    kNoUsers,           // etcd knows none: ask without
    kNotPermitted,
    kMayPass,
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string reason;
};
/// What an answer refuses; nullopt for one that does not.
std::optional<Refusal> find_refusal(int http_status, std::string_view answer);

}  // namespace fo::lock::etcd
