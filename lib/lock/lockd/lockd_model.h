// The state machine of gms-lockd's lock. Pure: no descriptor, no clock, no file; messages and
// writes are returned as effects, and the time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lock/lockd/lockd_metrics.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/lockd/lockd_state.h"
#include "text/time_text.h"

namespace fo::lock {

using ConnectionId = std::uint64_t;

struct LockdTime {
  std::chrono::steady_clock::time_point steady;
  text::WallTime wall;
};

/// The event that ends a client's part in the lock after its grant.
enum class HoldBy {
  kConnection,
  /// The end of the connection and of the pipe.
  kLifeline,
  /// Its expiry, which the server reports by lifeline_ended. Such a client is on another machine.
  /// It joins a grant by claiming it, not by its id, because two engines with the same id by
  /// mistake must not both be active.
  kLease,
};

struct LockdPeer {
  /// nullopt if it is not visible.
  std::optional<RecordedProcess> process = std::nullopt;
  HoldBy hold_by = HoldBy::kConnection;
  /// The name in log lines; if empty, its process.
  std::string name = {};
  /// For a lease: sent with its grant, and required for a claim.
  std::string token = {};
  /// The key of its limit in the queue: its process, its address, or one common key for all
  /// processes that are not visible. Empty: no limit.
  std::string origin = {};
};

/// Number of connections of one process, and of any other origin, that may wait.
inline constexpr std::size_t kMaxPlacesOfProcess = 64;
inline constexpr std::size_t kMaxPlaces = 256;

/// The pause before a failed write of the record is retried.
inline constexpr std::chrono::milliseconds kRecordRetryInterval{500};
/// If the server sees the end of the reconnect window later than this, it was suspended, and
/// messages of the holder may be unread: the window continues, for at most kWindowExtension.
inline constexpr std::chrono::milliseconds kWindowLateness{50};
inline constexpr std::chrono::milliseconds kWindowExtension{1000};

/// The effects that the server must perform, in this order.
struct LockdEffects {
  struct Note {
    bool is_warning = false;
    std::string text;
    /// LockdPeer::origin of the client that caused it and can repeat it at will.
    std::string origin = {};
  };
  std::vector<Note> notes = {};
  /// A RefusedAnswer is the last one of its connection, which the model has removed.
  std::vector<std::pair<ConnectionId, LockdAnswer>> answers = {};
  /// The state to write to the state file; call LockdModel::recorded afterwards.
  std::optional<LockdState> record = std::nullopt;
};

/// Free:       not held, and no waiter (or the last record is still being written).
/// Recording:  granted, but the grant is not on file yet and the client is not informed.
/// Held:       the holder is informed; further connections of it may wait for their record.
/// Recovering: held when the last server ended; no connection of the holder has returned yet.
enum class LockdPhase { kFree, kRecording, kHeld, kRecovering };

// clang-format off
// From \ event | acquire        | last of holder gone | recorded  | not recorded | window over
// -------------+----------------+---------------------+-----------+--------------+---------------
// Free         | Recording (a)  | -                   | -         | -            | -
// Recording    | (b)            | Free or Recording   | Held      | Recording    | -
// Held         | (b)            | Free, Recording (c) | Held      | Held         | Held
// Recovering   | Held (d)       | -                   | -         | -            | Free, Recording (e)
// clang-format on
//
// (a) with the next generation; a claim by the last holder of its grant, or of a generation higher
//     than any known, is Held with that. Any other claim is refused, and so is a lease's claim of
//     a known grant without its token.
// (b) a claim of this grant joins it, and so does a connection with the holder's id that is not a
//     lease while one of the holder's connections is open; any other claim is refused; all other
//     requests wait, first in first out.
// (c) Recovering again for the rest of the window, unless all connections of the holder returned
//     and stayed until then; never if their number is unknown.
// (d) for a claim of the recorded grant, or a recorded process with the holder's id; for any claim
//     if the file was damaged. Any other claim is refused; all other requests wait.
// (e) unless a recorded process is visible and runs: then Recovering until it ends.
class LockdModel {
 public:
  /// `running` are the recorded processes that are visible and run. A damaged file is Recovering
  /// with an unknown holder. So is a missing one if this server grants leases (for `expiry`),
  /// because leases of the previous server may still be valid. A longer recorded expiry extends the
  /// window.
  LockdModel(std::chrono::milliseconds reconnect_window, const LoadedState& loaded,
             std::vector<RecordedProcess> running, const LockdTime& now,
             std::optional<std::chrono::milliseconds> expiry = std::nullopt);

  /// A connection requests the lock; `id` must be new.
  void acquire(ConnectionId id, const AcquireRequest& request, const LockdPeer& peer,
               const LockdTime& now);
  /// A connection was closed. True if it still counts because of its lifeline or lease.
  bool closed(ConnectionId id, const LockdTime& now);
  /// The write end of a connection's pipe has no owner any more, or its lease has expired.
  void lifeline_ended(ConnectionId id, const LockdTime& now);
  /// A lease sent a heartbeat.
  void heartbeat(ConnectionId id, const LockdTime& now);
  /// The expiry of a lease after its last message. A client that reconnects to a server with
  /// shorter leases uses the old expiry until it has received the answer. That is certain at the
  /// second heartbeat, because the first one is sent with the claim.
  [[nodiscard]] std::chrono::milliseconds expiry_of(ConnectionId id) const;
  /// The effect `record` is done; `error` is the reason if it failed.
  void recorded(const std::optional<std::string>& error, const LockdTime& now);
  /// A process that ran when the model was created has ended.
  void process_ended(const RecordedProcess& process, const LockdTime& now);
  /// Call it at wake_at(); at any other time it does nothing.
  void tick(const LockdTime& now);
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> wake_at() const;

  /// The effects since the last call.
  LockdEffects take_effects() { return std::exchange(effects_, {}); }

  /// A connection of the holder that others with the same id may join, if any. Its peer may have
  /// closed it without the server having noticed.
  [[nodiscard]] std::optional<ConnectionId> find_joinable() const;

  [[nodiscard]] LockdPhase phase() const;
  [[nodiscard]] StatusAnswer status(const LockdTime& now) const;
  [[nodiscard]] LockdCounts counts() const;

 private:
  struct Hold {
    std::string engine_id;
    std::uint64_t generation = 0;
    text::WallTime granted_at;
    /// A client believes that it holds the lock.
    bool known = false;
    std::string token = {};
    /// The origin of the client that joined last.
    std::string origin = {};
  };
  /// A connection that waits, or shares the hold.
  struct Member {
    std::string engine_id;
    std::optional<RecordedProcess> process;
    std::string name;
    std::string token;
    std::string origin;
    /// Its position in the queue, while it waits.
    std::uint64_t ticket = 0;
    bool is_lease = false;
    bool connected = true;
    bool has_lifeline = false;
    bool waits = true;
    /// It was informed of its grant.
    bool informed = false;
    /// It reconnected and claimed its lock.
    bool returned = false;
    /// It reduced the number of expected connections.
    bool counted = false;
    /// The heartbeats of a lease since it was informed.
    int heartbeats = 0;
  };
  /// The connections and processes of the last server's holder that are still expected.
  struct Recovery {
    std::chrono::steady_clock::time_point window_end;
    bool window_over = false;
    /// nullopt: the number is unknown.
    std::optional<std::size_t> connections = std::nullopt;
    std::vector<RecordedProcess> running = {};
  };

  void decide(ConnectionId id, Member& member, const AcquireRequest& request, const LockdTime& now);
  void rejoin(ConnectionId id, Member& member);
  void join(ConnectionId id, Member& member);
  void enqueue(ConnectionId id, Member& member);
  void dequeue(const Member& member);
  void refuse(ConnectionId id, const std::string& reason);
  void refuse_claim(ConnectionId id, std::uint64_t generation);
  void leave(ConnectionId id);
  void not_recorded(const LockdState& wanted, const std::string& error, const LockdTime& now);
  // Performs all transitions that follow an event.
  void settle(const LockdTime& now);
  void settle_recovery(const LockdTime& now);
  void release_hold();
  void grant_next(const LockdTime& now);
  void join_from_queue();
  void answer_granted();
  void start_record();
  void announce_holder();
  [[nodiscard]] bool has_part() const { return !parts_.empty(); }
  [[nodiscard]] bool has_place_for(const Member& member) const;
  [[nodiscard]] bool is_on_file(const Member& member, bool all_counted,
                                const std::set<RecordedProcess>& processes) const;
  [[nodiscard]] std::optional<std::size_t> connections() const;
  [[nodiscard]] LockdState state() const;
  [[nodiscard]] WaitingAnswer waiting_answer() const;
  void note(std::string text, std::string origin = {}) {
    effects_.notes.push_back({false, std::move(text), std::move(origin)});
  }
  void warn(std::string text) { effects_.notes.push_back({true, std::move(text)}); }

  std::chrono::milliseconds reconnect_window_;
  std::optional<std::chrono::milliseconds> expiry_;
  /// The expiry of the last server's leases, while some of them may be valid.
  std::optional<std::chrono::milliseconds> last_expiry_;
  std::map<ConnectionId, Member> members_;
  // Indexes of members_, so that the cost of an event does not grow with the number of waiters.
  /// By ticket.
  std::map<std::uint64_t, ConnectionId> queue_;
  std::uint64_t last_ticket_ = 0;
  /// The queue's tickets by engine id, without leases, and the number of waiters by origin.
  std::map<std::string, std::set<std::uint64_t>> tickets_;
  std::map<std::string, std::size_t> places_;
  /// Members that do not wait; among them those that are not informed yet, and those through which
  /// a connection with the holder's id and without a generation joins the hold.
  std::set<ConnectionId> parts_;
  std::set<ConnectionId> unanswered_;
  std::set<ConnectionId> joinable_;
  /// Members that may still use the expiry of the last server.
  std::set<ConnectionId> unconfirmed_;
  std::optional<Hold> hold_;
  /// The last hold that a client was informed of.
  std::optional<Hold> last_hold_;
  std::optional<Recovery> recovery_;
  /// The highest generation that was granted or claimed, and the last that a client was informed
  /// of.
  std::uint64_t last_generation_ = 0;
  std::uint64_t last_known_generation_ = 0;
  /// While failing_, only what is certainly on file.
  LockdState on_file_;
  /// The state that is being written.
  std::optional<LockdState> writing_;
  /// The file should be updated, but no client waits for it.
  bool stale_ = false;
  /// The last write failed: its content may be on file, or not.
  bool failing_ = false;
  std::optional<std::chrono::steady_clock::time_point> record_again_at_;
  /// The last generation announced to the queue.
  std::optional<std::uint64_t> announced_;
  std::uint64_t grants_ = 0;
  std::uint64_t record_failures_ = 0;
  LockdEffects effects_;
};

}  // namespace fo::lock
