// What gms-lockd and its clients say to each other: one JSON object per line, requests one way and
// answers the other. Bytes and types only: no socket, no state.
//
// Over a Unix socket, an acquire request may carry one descriptor (SCM_RIGHTS, with any of its
// bytes): the reading end of a pipe, opened for reading only, whose writing end the client's
// process tree inherits. The lock stays with the client until its connection is closed and all
// writing ends are as well.
//
// Over TCP a client's part in the lock is a lease: it ends when the client has said nothing for the
// server's expiry, or says that it gives it up; not with the connection, once it was granted.
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
/// The longest request and the longest answer, the newline included.
inline constexpr std::size_t kMaxRequestBytes = 4096;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} * 1024;
/// A status answer lists no more than this of each kind.
inline constexpr std::size_t kMaxListed = 64;
/// What may be claimed leaves room for those that follow.
inline constexpr std::uint64_t kMaxClaim = kMaxGeneration / 2;
inline constexpr std::uint64_t kMaxSequence = kMaxGeneration;
inline constexpr std::chrono::milliseconds kShortestExpiry{500};
inline constexpr std::chrono::milliseconds kLongestExpiry = std::chrono::hours(1);

/// Wait for the lock, and hold it until the connection closes. Nothing but a ReleaseRequest, and
/// over TCP HeartbeatRequests, may be sent after it.
struct AcquireRequest {
  /// As check_lock_id wants it.
  std::string engine_id;
  /// Of a grant that the client has and did not give up: it lost its connection, or the server was
  /// started anew. 1 to kMaxClaim.
  std::optional<std::uint64_t> generation = std::nullopt;
  /// Over TCP, with a generation: what came with the grant. Empty: none.
  std::string token = {};
  friend bool operator==(const AcquireRequest&, const AcquireRequest&) = default;
};

/// Answered with a StatusAnswer; may be sent again on the same connection, but no AcquireRequest.
struct StatusRequest {
  friend bool operator==(const StatusRequest&, const StatusRequest&) = default;
};

/// After an AcquireRequest: the connection's end is the end of its part in the lock, whoever still
/// has the writing end of its pipe. Over TCP it is the end of that part, and of what is left of the
/// client's connections before, and the server closes the connection. Not answered.
struct ReleaseRequest {
  friend bool operator==(const ReleaseRequest&, const ReleaseRequest&) = default;
};

/// Over TCP, after an AcquireRequest: the client is there. Answered at once with a HeartbeatAnswer.
struct HeartbeatRequest {
  /// The client's own, to know which one was answered; up to kMaxSequence.
  std::uint64_t sequence = 0;
  friend bool operator==(const HeartbeatRequest&, const HeartbeatRequest&) = default;
};

using LockdRequest = std::variant<AcquireRequest, StatusRequest, ReleaseRequest, HeartbeatRequest>;

/// To a client in the queue: when it enters it, whenever the holder changes, and when a grant could
/// not be recorded.
struct WaitingAnswer {
  /// Null while nobody was told that the lock is his, and where a damaged state file hides it.
  std::optional<std::string> holder = std::nullopt;
  std::optional<std::uint64_t> generation = std::nullopt;
  std::chrono::milliseconds reconnect_window{};
  friend bool operator==(const WaitingAnswer&, const WaitingAnswer&) = default;
};

/// The lock is the client's.
struct GrantedAnswer {
  std::string engine_id;
  std::uint64_t generation = 0;
  /// When this generation was granted first, to the millisecond.
  text::WallTime granted_at;
  std::chrono::milliseconds reconnect_window{};
  /// Over TCP: what a claim of this grant has to give back, since every waiter is told the rest.
  /// As is_token has it; empty: none.
  std::string token = {};
  friend bool operator==(const GrantedAnswer&, const GrantedAnswer&) = default;
};

/// The last answer of a connection. kTryAgain: the claimed grant is over; kNotPermitted: the peer
/// is somebody else's process; kProtocol: it broke the protocol; kConfig: a bad engine id.
struct RefusedAnswer {
  base::ExitStatus status = base::ExitStatus::kProtocol;
  std::string reason;
  friend bool operator==(const RefusedAnswer&, const RefusedAnswer&) = default;
};

struct StatusAnswer {
  struct Connection {
    /// Nullopt for a process of a pid namespace that the server does not see.
    std::optional<pid_t> pid = std::nullopt;
    /// False: closed, but somebody still has the writing end of its pipe.
    bool connected = true;
    friend bool operator==(const Connection&, const Connection&) = default;
  };
  struct Waiter {
    std::string engine_id;
    std::optional<pid_t> pid = std::nullopt;
    friend bool operator==(const Waiter&, const Waiter&) = default;
  };
  /// Who has the lock, or had it when the last server ended and is waited for.
  std::optional<std::string> holder = std::nullopt;
  /// The last one that was given to anybody; 0: none.
  std::uint64_t generation = 0;
  std::optional<text::WallTime> granted_at = std::nullopt;
  /// The holder's, and who waits, in the order of the queue.
  std::vector<Connection> connections = {};
  std::vector<Waiter> waiters = {};
  std::chrono::milliseconds reconnect_window{};
  /// The namespace of all pids here, by its inode number.
  std::uint64_t pid_ns = 0;
  /// What is left of it; nullopt when no holder is waited for.
  std::optional<std::chrono::milliseconds> window_left = std::nullopt;
  /// Processes of the holder that run and did not return: nobody else is granted the lock.
  std::vector<pid_t> awaited_pids = {};
  friend bool operator==(const StatusAnswer&, const StatusAnswer&) = default;
};

/// The client's part, be it the lock or a place in the queue, does not end for want of heartbeats
/// before `expiry` from now.
struct HeartbeatAnswer {
  std::uint64_t sequence = 0;
  /// kShortestExpiry to kLongestExpiry.
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

/// Reads a line without its newline. Members it does not know are passed over. Throws
/// Error(kProtocol) for what is no such message, and Error(kConfig) for an engine id that
/// check_lock_id refuses.
LockdRequest decode_request(std::string_view line);
/// The same for answers, only ever kProtocol.
LockdAnswer decode_answer(std::string_view line);

}  // namespace fo::lock
