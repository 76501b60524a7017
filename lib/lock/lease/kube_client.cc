#include "lock/lease/kube_client.h"

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "kube/client.h"
#include "kube/lease.h"
#include "lock/grant.h"
#include "lock/lease/kube_identity.h"
#include "loop/backoff.h"
#include "loop/both.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/file/random.h"
#include "os/log.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::BootClock;
using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using std::chrono::seconds;
using std::chrono::system_clock;
using Outcome = kube::Client::Written::Outcome;

// The timeout of a request while no lock is held.
constexpr Duration kRequestTime = seconds(5);
// A silent connection is closed after this time.
constexpr Duration kWatchTime = seconds(30);
// The interval of queries where watching is not permitted, and after a watch without events.
constexpr Duration kLookInterval = seconds(1);
// Roles may change, so a refused watch is retried.
constexpr Duration kWatchAgain = std::chrono::minutes(5);
// The maximum difference of two machines' clocks at which one recognises the other's lease as
// current.
constexpr Duration kClocksApart = std::chrono::minutes(1);
// The number of attempts of one renewal. A conflict, such as an edit of the Lease by another
// client, is retried at once.
constexpr int kMaxConflicts = 3;

class KubeClient final : public LeaseClient {
 public:
  KubeClient(const LockUri& uri, const std::string& id)
      : kube_(find_kube_config(uri)),
        leases_(kube::leases_in(uri.network.name_space)),
        name_(uri.network.key),
        duration_(
            std::chrono::duration_cast<seconds>(uri.network.ttl.value_or(kDefaultLeaseDuration))),
        identity_(make_identity(id, os::random_hex(8))),
        // Waiters spread their watches and queries over time.
        watch_time_(kWatchTime, kWatchTime) {}

  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override;

 private:
  // The kind of the next query.
  enum class Look { kGet, kTake, kPause };

  // A Lease, and when its current content was first seen.
  struct Seen {
    kube::Lease lease;
    BootClock::time_point since;
    // The longest duration seen for this holder, which may not know of a shorter one.
    seconds longest{0};
    // The Lease was deleted, seen at `since`; its holder may not know yet.
    bool is_deleted = false;
  };

  awaitable<Step> advance() override;
  void begin() override;
  awaitable<bool> try_release(Deadline deadline) override;
  [[nodiscard]] bool is_reached() const override { return is_reached_; }

  // The Lease in an answer.
  [[nodiscard]] kube::Lease read(const kube::Object& object) const;
  // Throws `error` as transient once the server was reached: files of certificates and tokens are
  // replaced at times, and proxies answer with their own pages. A refusal by the API server itself
  // is transient only if `is_known`, because it permitted the same before.
  [[noreturn]] void fail(const Error& error, bool is_known = false) const;

  // nullopt if the Lease does not exist.
  awaitable<std::optional<kube::Lease>> get(Deadline deadline);
  awaitable<kube::Client::Written> put(kube::Lease seen, kube::Claim claim, Deadline deadline);

  void note(const kube::Lease& lease);
  void note_absence();
  [[nodiscard]] BootClock::time_point free_at(const Seen& seen) const;
  // Creates the Lease, or takes it over from the seen state; nullopt if another contender was
  // faster.
  awaitable<std::optional<Lease>> take();
  // Returns the time for which an update with this answer holds the lock: other contenders read the
  // stored duration.
  [[nodiscard]] Duration ttl_of(const kube::Lease& lease) const;
  // Waits until the seen Lease is free.
  awaitable<void> wait_until_free();
  awaitable<Look> watch();
  awaitable<std::optional<Lease>> look_and_take();
  [[nodiscard]] Deadline request_deadline() const { return step_deadline(kRequestTime); }

  kube::Client kube_;
  kube::Collection leases_;
  std::string name_;
  seconds duration_;
  std::string identity_;
  loop::Backoff watch_time_;

  bool is_reached_ = false;
  Look look_ = Look::kGet;
  // When a refused watch is retried; nullopt if it was not refused.
  std::optional<BootClock::time_point> watch_again_;

  std::optional<Seen> seen_;
  // The highest count of this Lease, which a Lease created after a deletion continues.
  std::uint64_t most_transitions_ = 0;

  // An update that makes this process the holder was sent, and is not known to have failed.
  bool may_be_ours_ = false;
  std::uint64_t generation_ = 0;
  // The Lease after our last update; nullopt if it must be queried.
  std::optional<kube::Lease> held_;
};

kube::Lease KubeClient::read(const kube::Object& object) const {
  try {
    return kube::decode_lease(object.text, leases_, name_);
  } catch (const Error& error) {
    fail(error);
  }
}

void KubeClient::fail(const Error& error, bool is_known) const {
  const auto* refused = dynamic_cast<const kube::Refused*>(&error);
  const bool is_unknown = refused != nullptr && refused->http_status() == 401;
  const bool is_servers = refused != nullptr && refused->status_object();
  const bool is_transient =
      is_unknown || loop::is_transient(error) || (is_reached_ && (!is_servers || is_known));
  if (refused != nullptr && is_transient) {
    throw Postponed(error.what(), refused->retry_after(),
                    is_unknown ? ExitStatus::kNotPermitted : ExitStatus::kUnavailable);
  }
  if (error.status() != ExitStatus::kTryAgain && is_transient) {
    throw Error(ExitStatus::kUnavailable, error.what());
  }
  throw Error(error);
}

awaitable<std::optional<kube::Lease>> KubeClient::get(Deadline deadline) {
  std::optional<kube::Lease> lease;
  try {
    const std::optional<kube::Object> object = co_await kube_.get(leases_, name_, deadline);
    if (object) lease = read(*object);
  } catch (const Error& error) {
    // Some servers don't know the roles yet just after their start.
    fail(error, true);
  }
  is_reached_ = true;
  co_return lease;
}

awaitable<kube::Client::Written> KubeClient::put(kube::Lease seen, kube::Claim claim,
                                                 Deadline deadline) {
  return kube_.update(leases_, name_, kube::encode_lease(seen, claim), deadline);
}

// Changes of other fields, by any client, do not renew a Lease.
void KubeClient::note(const kube::Lease& lease) {
  // At the maximum, the count continues from the number that an operator sets.
  const bool is_full = most_transitions_ >= kube::kMaxTransitions;
  most_transitions_ = is_full ? lease.transitions : std::max(most_transitions_, lease.transitions);
  const auto claim = [](const kube::Lease& of) {
    return std::tie(of.holder, of.renew_time, of.acquire_time, of.transitions, of.duration);
  };
  const bool is_known = seen_ && !seen_->is_deleted && claim(seen_->lease) == claim(lease);
  const bool is_same_hold = seen_ && seen_->lease.holder == lease.holder;
  const seconds longest =
      std::max(is_same_hold ? seen_->longest : seconds(0), lease.duration.value_or(duration_));
  seen_ = Seen{lease, is_known ? seen_->since : BootClock::now(), longest};
}

// The lease counts from now, because its holder may have renewed it just before the deletion.
void KubeClient::note_absence() {
  if (!seen_ || seen_->is_deleted) return;
  seen_->since = BootClock::now();
  seen_->is_deleted = true;
}

BootClock::time_point KubeClient::free_at(const Seen& seen) const {
  const std::string& holder = seen.lease.holder;
  if (holder.empty() || holder == identity_) return seen.since;
  return seen.since + seen.longest;
}

awaitable<std::optional<Lease>> KubeClient::take() {
  const auto granted_at = system_clock::now();
  const std::uint64_t generation = most_transitions_ + 1;
  if (generation > kube::kMaxTransitions) {
    throw Error(ExitStatus::kUnavailable, "update " + kube::describe(leases_, name_) +
                                              ": leaseTransitions is " +
                                              std::to_string(most_transitions_) +
                                              ", the maximum: an administrator has to lower it");
  }
  const kube::Claim claim{identity_, duration_, generation, granted_at, granted_at};
  // A later answer would leave too little of the lease.
  const Deadline deadline = request_deadline().sooner(Deadline::after(Duration(duration_) / 2));
  const bool might_be_ours = std::exchange(may_be_ours_, true);
  const BootClock::time_point sent = BootClock::now();
  kube::Client::Written written;
  try {
    if (seen_) {
      kube::Lease seen = seen_->lease;
      written = co_await put(std::move(seen), claim, deadline);
    } else {
      std::string object = kube::encode_lease(leases_, name_, claim);
      written = co_await kube_.create(leases_, name_, std::move(object), deadline);
    }
  } catch (const Error& error) {
    // A server that failed may have executed the request.
    const auto* refused = dynamic_cast<const kube::Refused*>(&error);
    if (refused != nullptr && refused->http_status() < 500) may_be_ours_ = might_be_ours;
    fail(error);
  }
  if (written.outcome != Outcome::kDone) {
    may_be_ours_ = might_be_ours;
    co_return std::nullopt;
  }
  kube::Lease lease = read(written.object);
  if (lease.holder != identity_ || lease.transitions != generation ||
      ttl_of(lease) == Duration::zero()) {
    throw Error(ExitStatus::kProtocol, "update " + kube::describe(leases_, name_) +
                                           ": the API server returned a different Lease");
  }
  const Lease granted{generation, granted_at, {sent, ttl_of(lease)}};
  note(lease);
  held_ = std::move(lease);
  generation_ = generation;
  co_return granted;
}

Duration KubeClient::ttl_of(const kube::Lease& lease) const {
  return std::min(duration_, lease.duration.value_or(seconds(0)));
}

awaitable<void> KubeClient::wait_until_free() {
  // The time is computed repeatedly, because an edit of the Lease may have moved it.
  for (;;) {
    const Duration left = base::time_until(free_at(*seen_));
    if (left <= Duration::zero()) co_return;
    co_await loop::pause_for(std::min(left, kLookInterval));
  }
}

// One watch for many changes, until the Lease is free: otherwise each waiter would need a
// connection for each renewal.
awaitable<KubeClient::Look> KubeClient::watch() {
  const BootClock::time_point begin = BootClock::now();
  try {
    kube::Selection selection;
    selection.fields = "metadata.name=" + name_;
    std::string version = seen_->lease.resource_version;
    std::function<bool(const kube::WatchEvent&)> on_event = [&](const kube::WatchEvent& event) {
      if (event.kind == kube::WatchEvent::Kind::kDeleted) return false;
      if (event.kind == kube::WatchEvent::Kind::kBookmark) return true;
      note(kube::decode_lease(event.object.text, leases_, name_));
      return free_at(*seen_) > BootClock::now();
    };
    awaitable<kube::Client::WatchEnd> watch =
        kube_.watch_once(leases_, std::move(selection), version,
                         Deadline::after(watch_time_.next()), std::move(on_event));
    co_await loop::run_both(loop::without_result(std::move(watch)), wait_until_free());
  } catch (const kube::Refused& refused) {
    if (refused.http_status() != 403) {
      throw Postponed(refused.what(), refused.retry_after());
    }
    if (!watch_again_) {
      os::log(os::LogLevel::kWarning, "{}; polling it every second instead", refused.what());
    }
    watch_again_ = BootClock::now() + kWatchAgain;
    co_return Look::kGet;
  } catch (const Error& error) {
    // After any error of a watch, a query is still possible.
    throw Error(ExitStatus::kUnavailable, error.what());
  }
  watch_again_.reset();
  const bool is_early = BootClock::now() - begin < kLookInterval;
  co_return is_early ? Look::kPause : Look::kGet;
}

// One step; nullopt: continue as `look_` says.
awaitable<std::optional<Lease>> KubeClient::look_and_take() {
  if (std::exchange(look_, Look::kGet) != Look::kTake) {
    std::optional<kube::Lease> lease = co_await get(request_deadline());
    if (lease) {
      note(*lease);
    } else {
      note_absence();
    }
  }
  const BootClock::time_point free = seen_ ? free_at(*seen_) : BootClock::time_point::min();
  const BootClock::time_point now = BootClock::now();
  if (free > now) {
    if (seen_->is_deleted || (watch_again_ && now < *watch_again_)) {
      co_await loop::pause_for(std::min<Duration>(free - now, kLookInterval));
      co_return std::nullopt;
    }
    look_ = co_await watch();
    // Even if the watch has reported nothing: the update fails if the Lease was renewed.
    if (BootClock::now() >= free_at(*seen_)) look_ = Look::kTake;
    co_return std::nullopt;
  }
  if (seen_ && seen_->is_deleted) seen_.reset();
  std::optional<Lease> lease = co_await take();
  if (!lease) look_ = Look::kPause;
  co_return lease;
}

void KubeClient::begin() {
  held_.reset();
  look_ = Look::kGet;
}

awaitable<LeaseClient::Step> KubeClient::advance() {
  const std::optional<Lease> lease = co_await look_and_take();
  if (lease) co_return *lease;
  co_return look_ == Look::kPause ? Next::kAfterPause : Next::kAtOnce;
}

awaitable<std::variant<Renewal, LeaseEnded>> KubeClient::renew(Deadline deadline) {
  using Answer = std::variant<Renewal, LeaseEnded>;
  const auto ended = [](const std::string& reason) {
    return Answer(LeaseEnded{ExitStatus::kTryAgain, reason});
  };
  std::string conflict;
  for (int conflicts = 0; conflicts < kMaxConflicts; ++conflicts) {
    if (!held_) {
      std::optional<kube::Lease> lease = co_await get(deadline);
      if (!lease) co_return ended("the Lease was deleted");
      note(*lease);
      if (lease->holder.empty()) co_return ended("it was released by another process");
      if (lease->holder != identity_) {
        co_return ended(base::quoted(id_of_identity(lease->holder)) + " has acquired it");
      }
      held_ = std::move(lease);
    }
    // The answer sets it again.
    kube::Lease seen = *std::exchange(held_, std::nullopt);
    const kube::Claim claim{identity_, duration_, generation_, std::nullopt, system_clock::now()};
    const BootClock::time_point sent = BootClock::now();
    kube::Client::Written written;
    try {
      written = co_await put(std::move(seen), claim, deadline);
    } catch (const Error& error) {
      fail(error);
    }
    if (written.outcome == Outcome::kAbsent) co_return ended("the Lease was deleted");
    conflict = written.reason;
    if (written.outcome == Outcome::kConflict) continue;
    kube::Lease lease = read(written.object);
    if (lease.holder != identity_) continue;
    const Renewal renewal{sent, ttl_of(lease)};
    if (renewal.ttl == Duration::zero()) {
      co_return Answer(LeaseEnded{ExitStatus::kProtocol, "the Lease has no duration"});
    }
    note(lease);
    held_ = std::move(lease);
    co_return Answer(renewal);
  }
  throw Error(ExitStatus::kUnavailable, conflict);
}

awaitable<bool> KubeClient::try_release(Deadline deadline) {
  if (!may_be_ours_) co_return true;
  if (!held_) held_ = co_await get(deadline);
  if (!held_ || held_->holder != identity_) {
    may_be_ours_ = false;
    held_.reset();
    co_return true;
  }
  kube::Lease seen = *std::exchange(held_, std::nullopt);
  const std::uint64_t generation = seen.transitions;
  const kube::Claim nobody{"", seconds(1), generation, std::nullopt, system_clock::now()};
  kube::Client::Written written;
  try {
    written = co_await put(std::move(seen), nobody, deadline);
  } catch (const Error& error) {
    fail(error);
  }
  may_be_ours_ = written.outcome == Outcome::kConflict;
  if (may_be_ours_) throw Error(ExitStatus::kUnavailable, written.reason);
  co_return true;
}

awaitable<std::optional<kube::Object>> read_object(kube::Config config, kube::Collection from,
                                                   std::string name, Deadline deadline) {
  kube::Client client(std::move(config));
  co_return co_await client.get(std::move(from), std::move(name), deadline);
}

}  // namespace

kube::Config find_kube_config(const LockUri& uri, std::string_view folder) {
  const LockUri::Network& network = uri.network;
  kube::Config given;
  if (!network.servers.empty()) given.server = network.servers.front();
  given.tls = network.tls;
  given.token_file = network.token_file;
  return kube::find_config(std::move(given), "open lock " + base::quoted(uri.path),
                           "the lock's URI has no api=URL", folder);
}

std::unique_ptr<LeaseClient> make_kube_client(const LockUri& uri, const std::string& id) {
  return std::make_unique<KubeClient>(uri, id);
}

LockStatus query_kube(const LockUri& uri, const Deadline& deadline) {
  const kube::Collection leases = kube::leases_in(uri.network.name_space);
  const std::string& name = uri.network.key;
  const std::optional<kube::Object> object =
      loop::run_to_end(read_object(find_kube_config(uri), leases, name, deadline));
  LockStatus status;
  status.path = uri.path;
  if (!object) return status;
  const kube::Lease lease = kube::decode_lease(object->text, leases, name);
  if (lease.transitions > 0) status.last_generation = lease.transitions;
  const auto renewed = kube::parse_micro_time(lease.renew_time);
  const Duration own_duration = uri.network.ttl.value_or(kDefaultLeaseDuration);
  const Duration duration = lease.duration ? Duration(*lease.duration) : own_duration;
  // The writer may have another clock, and a held lock must never be reported as free.
  const bool is_over = renewed && system_clock::now() - *renewed >= duration + kClocksApart;
  status.held = !lease.holder.empty() && !is_over;
  if (!status.held) return status;
  status.holder = id_of_identity(lease.holder);
  GrantRecord& record = status.record.emplace();
  record.holder = status.holder;
  record.generation = lease.transitions;
  if (const auto acquired = kube::parse_micro_time(lease.acquire_time)) {
    record.granted_at = text::format_time(*acquired);
  }
  return status;
}

}  // namespace fo::lock
