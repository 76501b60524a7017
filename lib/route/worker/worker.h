// A worker as this router sees it: what its record says, whether it can be reached, what is in
// flight there, and how it has behaved. No I/O; time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/units.h"
#include "fleet/card/card.h"
#include "fleet/health.h"
#include "fleet/record/instance.h"
#include "fleet/verdict.h"
#include "http/connection.h"
#include "net/address.h"
#include "net/tls_files.h"
#include "route/request/api_paths.h"

namespace fo::route {

using TimePoint = base::Deadline::Clock::time_point;

/// The present time since the clock's epoch, which the pure parts of this room get as an argument.
inline base::Duration time_now() { return base::Deadline::Clock::now().time_since_epoch(); }

/// When a worker's streams last brought a token, and how far apart its tokens are on average.
class Pace {
 public:
  /// `gap` is the time since the stream's last token; nullopt for its first one.
  void on_token(TimePoint now, std::optional<base::Duration> gap);
  [[nodiscard]] std::optional<TimePoint> last_token() const { return last_token_; }
  /// An average that weighs later gaps more; nullopt before the first gap.
  [[nodiscard]] std::optional<base::Duration> mean_gap() const { return mean_gap_; }

 private:
  std::optional<TimePoint> last_token_;
  std::optional<base::Duration> mean_gap_;
};

/// The number of a worker's slots that are used. A worker that reports overload gets half as many
/// for a time, and one whose engine has a queue gets as many as the engine runs. After that, each
/// success adds one slot.
class SlotLimit {
 public:
  /// The worker has refused a request that it was sent at `began`. Halves the present limit, unless
  /// that was done after `began`, because a busy worker refuses many requests at once; at least one
  /// slot stays. The limit does not grow before `now` + `pause`.
  void on_overload(std::uint64_t slots, base::Duration pause, TimePoint began, TimePoint now);
  /// The engine runs `running` requests, and `waiting` ones wait in its queue; `ours` are this
  /// router's part of both, in the same proportion. Keeps as many slots as it runs of ours, so that
  /// an engine with a full batch stays full; at least one stays. True if that lowers the limit.
  bool on_queue(std::uint64_t slots, std::uint64_t ours, double running, double waiting);
  /// True if that adds a slot.
  bool on_success(std::uint64_t slots, TimePoint now);
  [[nodiscard]] bool is_overloaded(TimePoint now) const { return now < grows_after_; }
  /// Returns the limit of concurrent requests: at most `slots`, at least 1.
  [[nodiscard]] std::uint64_t limit(std::uint64_t slots) const;

 private:
  /// nullopt: all slots.
  std::optional<std::uint64_t> limit_;
  TimePoint grows_after_;
  TimePoint halved_at_ = TimePoint::min();
};

/// Finds out whether a worker has answered only with status 503 for a time: then it is out as if it
/// refused connections.
class Unavailability {
 public:
  /// A 503 has arrived at `now`. True if the worker has answered nothing else for `time`. That time
  /// begins again with this 503 if there was none in the last `time`, or if the worker's streams
  /// have brought a token (the last one at `last_token`) since it began.
  bool on_unavailable(TimePoint now, std::optional<TimePoint> last_token,
                      base::Duration time = std::chrono::seconds(10));
  /// The worker has given another answer, or its reachability has changed: the time begins again.
  void reset() { since_.reset(); }

 private:
  std::optional<TimePoint> since_;
  TimePoint last_;
};

/// The rate of a worker for one kind of work: an average in which later work has more weight.
class Rate {
 public:
  void add(std::uint64_t amount, base::Duration time);
  /// The amount per second; nullopt before the first work.
  [[nodiscard]] std::optional<double> per_second() const;

 private:
  double amount_ = 0;
  std::chrono::duration<double> time_{0};
};

/// The part of a request that a worker does. The engines pair workers for prefill and decode.
enum class Role { kWhole, kPrefill, kDecode };

struct Worker {
  Worker(std::string its_id, const fleet::Health& its_health)
      : id(std::move(its_id)), health(its_health) {}

  std::string id;
  /// Unique among all workers so far; Workers::add sets it.
  std::uint64_t number = 0;
  /// Name in messages: NAME of --worker NAME=URL, else the id.
  std::string name;
  /// set_url() sets these together.
  std::string url;
  http::Origin origin;
  /// A prefix of its paths, from the URL; empty for none.
  std::string base_path;

  // Facts from its record, or from the worker itself.
  fleet::Life life = fleet::Life::kReady;
  /// It is draining by itself, and not because an operator drains it.
  bool drains_itself = false;
  /// The registry does not know whether it still runs.
  bool is_stale = false;
  /// It is not listed any more; requests in flight may finish.
  bool is_removed = false;
  /// The model that it was started with, and others that it serves, such as adapters.
  std::string model;
  std::set<std::string> other_models;
  /// `model` is the one that it reports, because no record names one.
  bool reports_model = false;
  /// The checksum of its card; may be empty.
  std::string card;
  /// The known facts of its model: the card, or the context_length alone; null if nothing is.
  std::shared_ptr<const fleet::Card> facts;
  Role role = Role::kWhole;
  /// Workers for prefill and decode must be equal in these to pair: the namespace of the record,
  /// and the form of the KV cache.
  std::string name_space;
  std::string kv_abi;
  std::optional<std::uint64_t> kv_tokens;
  std::uint64_t slots = 0;
  std::string started_at;
  std::string group;

  /// An operator of this router drains it.
  bool is_drained = false;
  /// The time when its record or an operator began to drain it; nullopt if it is not drained.
  std::optional<TimePoint> leaving_since;

  /// The joint verdict of the canaries.
  fleet::JointVerdict verdict;

  // Facts that this router has found.
  /// It accepts connections, and its /health is 200.
  bool is_reachable = false;
  /// Number of times that it became reachable: after each, another process may answer at its
  /// address.
  std::uint64_t incarnation = 0;
  /// It does not report token ids, or refuses requests for them.
  bool lacks_token_ids = false;
  /// It refuses requests for a stream with the usage in each event.
  bool refuses_usage = false;
  /// It was reached at least once, so that its models are known.
  bool is_known = false;
  /// It is stale, was never reached, and refuses connections or serves another model: it has ended,
  /// or is still starting.
  bool may_have_ended = false;
  /// nullopt while it can be reached.
  std::optional<TimePoint> unreachable_since;
  /// When its last fault was counted. A call that began before that and fails is part of the same
  /// fault.
  TimePoint last_fault{};
  fleet::Health health;
  /// Its part of the requests of its set, from its health, the verdict, and the other workers; 0:
  /// none.
  double weight = 0;
  /// The active engine of its pair is handing over to it: at its address, requests wait until it is
  /// active.
  bool is_taking_over = false;
  SlotLimit slot_limit;
  Unavailability unavailability;
  Pace pace;
  /// The tokens of prompts that it computes, and the bytes of KV caches that it pulls.
  Rate prefill;
  Rate link;
  /// The models, and the APIs of each, for which it has answered 401, 403 or 404, and when: its
  /// configuration differs from its record.
  std::map<std::pair<std::string, Api>, TimePoint> refused;

  /// True once the log has a warning that it is not private.
  bool warned_unencrypted = false;

  // Requests in flight.
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  /// Requests that move to it, while it prepares to continue them.
  std::uint64_t incoming_requests = 0;
  std::uint64_t incoming_tokens = 0;

  /// `parsed` is the URL; `tls` is for https; `networks` as in http::Origin. Throws what
  /// http::make_origin throws; then nothing has changed.
  void set_url(const std::string& text, const net::Url& parsed,
               const std::optional<net::TlsFiles>& tls,
               const std::shared_ptr<const net::Networks>& networks = nullptr);

  /// Whether its requests are encrypted, or stay on this machine.
  [[nodiscard]] bool is_private() const;
  /// Whether it takes new requests while it can be reached.
  [[nodiscard]] bool is_offered() const {
    return !is_removed && life == fleet::Life::kReady && !is_drained;
  }
  /// Whether it takes new requests at all: it is ready, and can be reached.
  [[nodiscard]] bool is_available() const { return is_reachable && is_offered(); }
  /// It is draining, by itself or because an operator drains it.
  [[nodiscard]] bool is_leaving() const { return is_drained || life == fleet::Life::kDraining; }
  /// Whether it can continue an answer after its tokens, or after its text.
  [[nodiscard]] bool can_continue(bool as_text) const {
    return as_text ? !refuses_usage : !lacks_token_ids;
  }
  /// Its answers are wrong, or its hardware has failed: it gets no request, and what it has
  /// delivered is not to be trusted.
  [[nodiscard]] bool is_convicted() const {
    return health.state() == fleet::HealthState::kConvicted || verdict.is_conviction();
  }
  /// Whether this worker for decode and the worker `other` for prefill can pair.
  [[nodiscard]] bool pairs_with(const Worker& other) const {
    return role == Role::kDecode && other.role == Role::kPrefill && other.is_available() &&
           other.model == model && other.name_space == name_space && other.kv_abi == kv_abi;
  }
  /// Returns it as a member of its set, with the lower one of the weights of its health and of the
  /// verdict.
  [[nodiscard]] fleet::SetMember as_member(base::Duration now) const;
  /// Its weight as a part of the capacity: one that was lost less than 10 s ago still counts in
  /// full, because a standby takes over within seconds.
  [[nodiscard]] double capacity_weight(TimePoint now) const;
  [[nodiscard]] bool serves(const std::string& model_name) const;
  /// The slots that may be used now.
  [[nodiscard]] std::uint64_t slots_now(double concurrency_factor) const;
};

using WorkerPtr = std::shared_ptr<Worker>;

}  // namespace fo::route
