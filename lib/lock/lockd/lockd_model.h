// Who gets the lock of gms-lockd. Pure: no descriptor, no clock, no file; what is to be said and to
// be written comes out as effects, and the time comes in.
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

/// What a client's part in the lock, once it was told of it, ends with.
enum class LockdTie {
  kConnection,
  /// The connection and the pipe.
  kLifeline,
  /// Its expiry, which the server tells as lifeline_ended. Such a client is on another machine: it
  /// joins a grant by claiming it, and not for its id, for two that were given the same id by
  /// mistake must not both be active.
  kLease,
};

struct LockdPeer {
  /// Nullopt where it is not visible.
  std::optional<RecordedProcess> process = std::nullopt;
  LockdTie tie = LockdTie::kConnection;
  /// For notes; empty: by its process.
  std::string name = {};
  /// Of a lease: what comes with its grant, and has to come with a claim of that.
  std::string token = {};
  /// What its places in the queue are counted by: its process, its address, or one name for all
  /// processes that are not visible. Empty: they are not counted.
  std::string origin = {};
};

/// How many connections of one process, and of one other origin, may wait.
inline constexpr std::size_t kMaxPlacesOfProcess = 64;
inline constexpr std::size_t kMaxPlaces = 256;

/// How long after a record that failed the next one is tried.
inline constexpr std::chrono::milliseconds kRecordAgainAfter{500};
/// A server that sees the end of the reconnect window later than this was itself held up, and what
/// the holder sent meanwhile may lie unread: the window goes on, for no longer than kMoreWindow.
inline constexpr std::chrono::milliseconds kWindowLateness{50};
inline constexpr std::chrono::milliseconds kMoreWindow{1000};

/// What the server has to do, in this order.
struct LockdEffects {
  struct Note {
    bool is_warning = false;
    std::string text;
    /// LockdPeer::origin of the client that caused it, which can do that as often as it likes.
    std::string origin = {};
  };
  std::vector<Note> notes = {};
  /// A RefusedAnswer is the last of its connection, which the model has forgotten.
  std::vector<std::pair<ConnectionId, LockdAnswer>> answers = {};
  /// To be written to the state file, and LockdModel::recorded to be called then.
  std::optional<LockdState> record = std::nullopt;
};

/// Free:       nobody has the lock, nobody waits for it (or the last record is still under way).
/// Recording:  it was given to somebody who does not know yet: the grant is not on file.
/// Held:       its holder knows; more connections of his may be waiting for their record.
/// Recovering: it was held when the last server ended, and none of the holder's has come back.
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
//     than any known, is Held with that. Any other claim is refused, and so is a lease's of a
//     known grant without its token.
// (b) a claim of this grant joins it, and so does a connection of the holder's id that is no lease
//     while one of his connections is open; any other claim is refused; the rest wait, first in
//     first out.
// (c) Recovering again, for what is left of the window, unless all his connections came back and
//     stayed until then; where their number is unknown that is never so.
// (d) for a claim of the recorded grant, or a recorded process with the holder's id. Where the file
//     was damaged: for any claim. Any other claim is refused; the rest wait.
// (e) unless a recorded process is visible and runs: then Recovering until it ends.
class LockdModel {
 public:
  /// `running` are the recorded processes that are visible and run. A damaged file is Recovering
  /// with an unknown holder. So is one that is not there where this server gives leases, which last
  /// for `expiry`: those of the server before may still last. A recorded expiry that is longer than
  /// the window makes it as long.
  LockdModel(std::chrono::milliseconds reconnect_window, const LoadedState& loaded,
             std::vector<RecordedProcess> running, const LockdTime& now,
             std::optional<std::chrono::milliseconds> expiry = std::nullopt);

  /// A connection asks for the lock; `id` is new.
  void acquire(ConnectionId id, const AcquireRequest& request, const LockdPeer& peer,
               const LockdTime& now);
  /// A connection was closed. True while it still counts, for the sake of its lifeline or lease.
  bool closed(ConnectionId id, const LockdTime& now);
  /// Nobody has the writing end of a connection's pipe any more, or its lease has ended.
  void lifeline_ended(ConnectionId id, const LockdTime& now);
  /// A heartbeat came of a lease.
  void heartbeat(ConnectionId id, const LockdTime& now);
  /// How long a lease lasts after the last sign of life. Whoever comes back to a server that gives
  /// shorter leases than the one before reckons with the old ones until the answer was heard, and
  /// that is known by the second heartbeat: the first one travels with the claim.
  [[nodiscard]] std::chrono::milliseconds expiry_of(ConnectionId id) const;
  /// The effect `record` was done; `error` says why it was not.
  void recorded(const std::optional<std::string>& error, const LockdTime& now);
  /// One of those that ran when the model was made.
  void process_ended(const RecordedProcess& process, const LockdTime& now);
  /// To be called at wake_at(); at any other time it does nothing.
  void tick(const LockdTime& now);
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> wake_at() const;

  /// What happened since it was called last.
  LockdEffects take_effects() { return std::exchange(effects_, {}); }

  /// One of the holder's connections that others of the same id may join, if any. Its peer may have
  /// closed it, unread yet.
  [[nodiscard]] std::optional<ConnectionId> find_joinable() const;

  [[nodiscard]] LockdPhase phase() const;
  [[nodiscard]] StatusAnswer status(const LockdTime& now) const;
  [[nodiscard]] LockdCounts counts() const;

 private:
  struct Hold {
    std::string engine_id;
    std::uint64_t generation = 0;
    text::WallTime granted_at;
    /// Somebody believes that he has it.
    bool known = false;
    std::string token = {};
    /// Of the client that joined it last.
    std::string origin = {};
  };
  /// One connection that waits, or has a part in the hold.
  struct Member {
    std::string engine_id;
    std::optional<RecordedProcess> process;
    std::string name;
    std::string token;
    std::string origin;
    /// Of its place in the queue, while it waits.
    std::uint64_t ticket = 0;
    bool is_lease = false;
    bool connected = true;
    bool has_lifeline = false;
    bool waits = true;
    /// It was told that it has the lock.
    bool told = false;
    /// It came back with what it believes is its lock.
    bool returned = false;
    /// One fewer is waited for because of it.
    bool counted = false;
    /// Of a lease, since it was told.
    int heartbeats = 0;
  };
  /// What of the last server's holder is still to come.
  struct Recovery {
    std::chrono::steady_clock::time_point window_end;
    bool window_over = false;
    /// Nullopt: nobody knows how many.
    std::optional<std::size_t> connections = std::nullopt;
    std::vector<RecordedProcess> running = {};
  };

  void judge(ConnectionId id, Member& member, const AcquireRequest& request, const LockdTime& now);
  void come_back(ConnectionId id, Member& member);
  void join(ConnectionId id, Member& member);
  void enqueue(ConnectionId id, Member& member);
  void dequeue(const Member& member);
  void refuse(ConnectionId id, const std::string& reason);
  void refuse_claim(ConnectionId id, std::uint64_t generation);
  void leave(ConnectionId id);
  void not_recorded(const LockdState& wanted, const std::string& error, const LockdTime& now);
  // Brings everything to rest after an event.
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
  /// Of the last server's leases, while some of them may last.
  std::optional<std::chrono::milliseconds> last_expiry_;
  std::map<ConnectionId, Member> members_;
  // Indexes of members_, so that no event costs more because many wait.
  /// By ticket.
  std::map<std::uint64_t, ConnectionId> queue_;
  std::uint64_t last_ticket_ = 0;
  /// Of those in the queue: the tickets by engine id, without leases; and how many by origin.
  std::map<std::string, std::set<std::uint64_t>> tickets_;
  std::map<std::string, std::size_t> places_;
  /// Those that do not wait. Of them: those that were not told yet, and those by which a connection
  /// of the holder's id that names no generation joins the hold.
  std::set<ConnectionId> parts_;
  std::set<ConnectionId> unanswered_;
  std::set<ConnectionId> joinable_;
  /// Those that may still reckon with a lease of the last server.
  std::set<ConnectionId> unconfirmed_;
  std::optional<Hold> hold_;
  /// The last of which somebody was told.
  std::optional<Hold> last_hold_;
  std::optional<Recovery> recovery_;
  /// The highest that was given to or claimed by anybody, and the last that anybody was told.
  std::uint64_t last_generation_ = 0;
  std::uint64_t last_known_generation_ = 0;
  /// While failing_, no more than what is on file for sure.
  LockdState on_file_;
  /// What is being written now.
  std::optional<LockdState> writing_;
  /// The file should change, although nobody waits for that.
  bool stale_ = false;
  /// The last record failed: what it wanted may be on file, or not.
  bool failing_ = false;
  std::optional<std::chrono::steady_clock::time_point> record_again_at_;
  /// What the queue was told last.
  std::optional<std::uint64_t> announced_;
  std::uint64_t grants_ = 0;
  std::uint64_t record_failures_ = 0;
  LockdEffects effects_;
};

}  // namespace fo::lock
