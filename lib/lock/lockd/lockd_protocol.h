// The messages between gms-lockd and its clients: one JSON object per line, requests in one
// direction and answers in the other. Bytes and types only: no socket, no state.
//
// Over a Unix socket, an acquire request may carry one descriptor (SCM_RIGHTS, with any of its
// bytes): the read end of a pipe, opened for reading only, whose write end the client's process
// tree inherits. The client holds the lock until its connection and all write ends are closed.
//
// Over TCP a client's part in the lock is a lease: after the grant it ends when the client has sent
// nothing for the server's expiry, or releases it; not with the connection.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/exit_status.h"
#include "lock/grant.h"
#include "text/time_text.h"

namespace fo::lock {

inline constexpr std::string_view kDefaultLockdSocket = "/shared/failover.sock";
/// Maximum size of a request and of an answer, including the newline.
inline constexpr std::size_t kMaxRequestBytes = 4096;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} * 1024;
/// Maximum number of entries of each kind in a status answer.
inline constexpr std::size_t kMaxListed = 64;
/// The maximum claim leaves room for later generations.
inline constexpr std::uint64_t kMaxClaim = kMaxGeneration / 2;
inline constexpr std::uint64_t kMaxSequence = kMaxGeneration;
inline constexpr std::chrono::milliseconds kMinExpiry{500};
inline constexpr std::chrono::milliseconds kMaxExpiry = std::chrono::hours(1);

/// Waits for the lock, and holds it until the connection closes. Only a ReleaseRequest and, over
/// TCP, HeartbeatRequests may follow it.
struct AcquireRequest {
  /// An id that check_lock_id accepts.
  std::string engine_id;
  /// The generation of a grant that the client holds, after a lost connection or a restart of the
  /// server. 1 to kMaxClaim.
  std::optional<std::uint64_t> generation = std::nullopt;
  /// Over TCP, with a generation: the token of the grant. May be empty.
  std::string token = {};
  friend bool operator==(const AcquireRequest&, const AcquireRequest&) = default;
};

/// Answered with a StatusAnswer; may be repeated on the same connection, but an AcquireRequest must
/// not follow.
struct StatusRequest {
  friend bool operator==(const StatusRequest&, const StatusRequest&) = default;
};

/// After an AcquireRequest: the end of the connection ends its part in the lock, even if a process
/// still has the write end of its pipe. Over TCP it ends that part, and the rest of the client's
/// earlier connections, and the server closes the connection. Not answered.
struct ReleaseRequest {
  friend bool operator==(const ReleaseRequest&, const ReleaseRequest&) = default;
};

/// Over TCP, after an AcquireRequest: renews the lease. Answered at once with a HeartbeatAnswer.
struct HeartbeatRequest {
  /// The client's own number, which the answer repeats; up to kMaxSequence.
  std::uint64_t sequence = 0;
  friend bool operator==(const HeartbeatRequest&, const HeartbeatRequest&) = default;
};

using LockdRequest = std::variant<AcquireRequest, StatusRequest, ReleaseRequest, HeartbeatRequest>;

/// Sent to a client when it enters the queue, when the holder changes, and when a grant could not
/// be recorded.
struct WaitingAnswer {
  /// Null before a client is informed of its grant, and if a damaged state file hides the holder.
  std::optional<std::string> holder = std::nullopt;
  std::optional<std::uint64_t> generation = std::nullopt;
  std::chrono::milliseconds reconnect_window{};
  friend bool operator==(const WaitingAnswer&, const WaitingAnswer&) = default;
};

/// The client holds the lock.
struct GrantedAnswer {
  std::string engine_id;
  std::uint64_t generation = 0;
  /// When this generation was first granted, to the millisecond.
  text::WallTime granted_at;
  std::chrono::milliseconds reconnect_window{};
  /// Over TCP: a secret that a claim of this grant must contain, because waiters know the rest. As
  /// is_token requires; may be empty.
  std::string token = {};
  friend bool operator==(const GrantedAnswer&, const GrantedAnswer&) = default;
};

/// The last answer of a connection. kTryAgain: the claimed grant has ended; kNotPermitted: the
/// peer's process belongs to another user; kProtocol: it violated the protocol; kConfig: an invalid
/// engine id.
struct RefusedAnswer {
  base::ExitStatus status = base::ExitStatus::kProtocol;
  std::string reason;
  friend bool operator==(const RefusedAnswer&, const RefusedAnswer&) = default;
};

struct StatusAnswer {
  struct Connection {
    /// nullopt for a process of another pid namespace.
    std::optional<pid_t> pid = std::nullopt;
    /// False: closed, but a process still has the write end of its pipe.
    bool connected = true;
    friend bool operator==(const Connection&, const Connection&) = default;
  };
  struct Waiter {
    std::string engine_id;
    std::optional<pid_t> pid = std::nullopt;
    friend bool operator==(const Waiter&, const Waiter&) = default;
  };
  /// The holder, or the holder at the end of the last server, which is waited for.
  std::optional<std::string> holder = std::nullopt;
  /// The last granted generation; 0: none.
  std::uint64_t generation = 0;
  std::optional<text::WallTime> granted_at = std::nullopt;
  /// The holder's connections, and the waiters in queue order.
  std::vector<Connection> connections = {};
  std::vector<Waiter> waiters = {};
  std::chrono::milliseconds reconnect_window{};
  /// The namespace of all pids here, by its inode number.
  std::uint64_t pid_ns = 0;
  /// The rest of the reconnect window; nullopt if no holder is waited for.
  std::optional<std::chrono::milliseconds> window_left = std::nullopt;
  /// Processes of the holder that run and did not reconnect: the lock is not granted meanwhile.
  std::vector<pid_t> awaited_pids = {};
  friend bool operator==(const StatusAnswer&, const StatusAnswer&) = default;
};

/// The client's lock or place in the queue does not expire before `expiry` from now.
struct HeartbeatAnswer {
  std::uint64_t sequence = 0;
  /// kMinExpiry to kMaxExpiry.
  std::chrono::milliseconds expiry{};
  friend bool operator==(const HeartbeatAnswer&, const HeartbeatAnswer&) = default;
};

using LockdAnswer =
    std::variant<WaitingAnswer, GrantedAnswer, RefusedAnswer, StatusAnswer, HeartbeatAnswer>;

/// 128 bits as 32 lower-case hexadecimal digits.
bool is_token(std::string_view text);

/// One line, the newline included.
std::string encode_request(const LockdRequest& request);
std::string encode_answer(const LockdAnswer& answer);

/// Parses a line without its newline. Unknown members are skipped. Throws Error(kProtocol) for an
/// invalid message, and Error(kConfig) for an engine id that check_lock_id refuses.
LockdRequest decode_request(std::string_view line);
/// The same for answers; only throws kProtocol.
LockdAnswer decode_answer(std::string_view line);

}  // namespace fo::lock
