#include "lock/lease/kube_client.h"

#include <algorithm>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "http/client.h"
#include "lock/grant.h"
#include "lock/lease/kube_api.h"
#include "lock/lease/kube_config.h"
#include "loop/pause.h"
#include "net/line_buffer.h"
#include "os/log.h"
#include "os/random.h"
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
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

// What an API server gets to answer while nothing is held.
constexpr Duration kRequestTime = seconds(5);
// A connection that is dead without a word is left after that.
constexpr Duration kLongestWatch = seconds(30);
// All that one watch may tell; of it, what is kept of a refusal.
constexpr base::ByteCount kMostWatched = 64 * base::kMiB;
constexpr std::size_t kMostRefusal = 64 << 10;
// Where watching is not permitted, and after a watch that told nothing.
constexpr Duration kLookInterval = seconds(1);
// Roles change.
constexpr Duration kWatchAgain = std::chrono::minutes(5);
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = seconds(2);
constexpr Duration kLongestRetryAfter = seconds(5);
// How far the clocks of two machines may be apart for one to tell the other's lease from an old
// one.
constexpr Duration kClocksApart = std::chrono::minutes(1);

LeaseName name_of(const LockUri& uri) { return {uri.network.name_space, uri.network.key}; }

http::FetchOptions options_for(const KubeConfig& config) {
  http::FetchOptions options;
  options.response_limit = kMostKubeAnswer;
  if (config.server.starts_with("https://")) options.tls = config.tls;
  options.headers.emplace_back("Accept", "application/json");
  if (!config.token_file.empty()) {
    options.headers.emplace_back("Authorization", "Bearer " + read_token(config.token_file));
  }
  return options;
}

bool is_success(const http::Response& answer) {
  return answer.status == 200 || answer.status == 201;
}

std::string reason_of(const http::Response& answer) {
  const std::optional<KubeStatus> status = decode_status(answer.body);
  return "the API server answers " + std::to_string(answer.status) +
         (status && !status->message.empty() ? ": " + status->message : "");
}

// That the Lease is not there: somebody else's 404, a load balancer's that has no server left, says
// nothing of it.
bool is_absent(const http::Response& answer, const LeaseName& name) {
  return answer.status == 404 && says_no_lease(answer.body, name);
}

// What an answer means that says nothing of the Lease: kUnavailable for what may pass.
ExitStatus status_of(const http::Response& answer) {
  switch (answer.status) {
    case 403:
      return ExitStatus::kNotPermitted;
    case 401:
    case 404:
    case 408:
    case 409:
    case 410:
    case 425:
    case 429:
      return ExitStatus::kUnavailable;
    default:
      return answer.status >= 500 ? ExitStatus::kUnavailable : ExitStatus::kProtocol;
  }
}

std::optional<Duration> retry_after(const http::Response& answer) {
  const auto header = answer.header("Retry-After");
  const auto count = header ? base::parse_uint(*header) : std::nullopt;
  if (!count) return std::nullopt;
  const auto most = static_cast<std::uint64_t>(kLongestRetryAfter / seconds(1));
  return seconds(std::min(*count, most));
}

class KubeClient final : public LeaseClient {
 public:
  KubeClient(const LockUri& uri, const std::string& id)
      : config_(find_kube_config(uri)),
        name_(name_of(uri)),
        duration_(
            std::chrono::duration_cast<seconds>(uri.network.ttl.value_or(kDefaultLeaseDuration))),
        identity_(make_identity(id, os::random_hex(8))),
        random_(std::hash<std::string>{}(identity_)) {}

  awaitable<Lease> acquire() override;
  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override;
  awaitable<void> release(Deadline deadline) override;

 private:
  // What the next look at the Lease is to be.
  enum class Next { kGet, kTake, kPause };

  // A Lease and when it was first seen that its holder left it so.
  struct Seen {
    KubeLease lease;
    BootClock::time_point since;
    // The longest duration that was seen for this holder, which may not know of a shorter one.
    seconds longest{0};
    // It was deleted, which was seen at `since`: whoever held it may not know yet.
    bool is_deleted = false;
  };

  awaitable<http::Response> ask(std::string method, std::string path, std::string body,
                                Deadline deadline);
  // The Lease in an answer.
  [[nodiscard]] KubeLease read(const http::Response& answer) const;
  // Throws for an answer that is not one of those that its caller knows what to do with.
  [[noreturn]] void refuse(const std::string& doing, const http::Response& answer);
  [[noreturn]] void refuse(const std::string& doing, const http::Response& answer,
                           ExitStatus status);
  // Throws `error` as kUnavailable once the server was reached: the files of certificates and
  // tokens are replaced now and then, what stands before a server puts in pages of its own, and
  // what worked before will again.
  [[noreturn]] void fail(const Error& error) const;

  // nullopt: there is none.
  awaitable<std::optional<KubeLease>> get(Deadline deadline);
  awaitable<http::Response> put(KubeLease seen, KubeClaim claim, Deadline deadline);

  void note(const KubeLease& lease);
  void note_absence();
  [[nodiscard]] BootClock::time_point free_at(const Seen& seen) const;
  // Creates the Lease or takes it as it was seen; nullopt when another was faster.
  awaitable<std::optional<Lease>> take();
  // For how long an update in this answer holds it: what is stored counts for the others.
  [[nodiscard]] Duration ttl_of(const KubeLease& lease) const;
  // Until the Lease that was seen is free.
  awaitable<void> wait_until_free();
  awaitable<Next> watch();
  awaitable<std::optional<Lease>> look_and_take(Next& next);
  [[nodiscard]] Deadline request_deadline() const;
  // Between half of `time` and all of it, so that many do not come at once.
  Duration spread(Duration time);

  KubeConfig config_;
  LeaseName name_;
  seconds duration_;
  std::string identity_;
  std::minstd_rand random_;

  // From the first call of acquire() on.
  std::optional<Deadline> reach_by_;
  bool is_reached_ = false;
  // When a refused watch is tried again; nullopt: it was not refused.
  std::optional<BootClock::time_point> watch_again_;
  // The status of the last answer when it was a refusal.
  int last_refusal_ = 0;
  std::optional<Duration> retry_after_;

  std::optional<Seen> seen_;
  // Of this Lease, also before it was deleted: a new one is to count on.
  std::uint64_t most_transitions_ = 0;

  // An update that makes the Lease ours was sent, and is not known to have failed.
  bool may_be_ours_ = false;
  std::uint64_t generation_ = 0;
  // The Lease as our last update left it; nullopt: not known, ask.
  std::optional<KubeLease> held_;
};

awaitable<http::Response> KubeClient::ask(std::string method, std::string path, std::string body,
                                          Deadline deadline) {
  retry_after_.reset();
  last_refusal_ = 0;
  try {
    http::FetchOptions options = options_for(config_);
    options.body = std::move(body);
    std::string url = config_.server + path;
    http::Response answer =
        co_await http::async_fetch(std::move(method), std::move(url), deadline, std::move(options));
    co_return answer;
  } catch (const Error& error) {
    fail(error);
  }
}

KubeLease KubeClient::read(const http::Response& answer) const {
  try {
    return decode_lease(answer.body, name_);
  } catch (const Error& error) {
    fail(error);
  }
}

void KubeClient::fail(const Error& error) const {
  if (!is_reached_ || error.status() == ExitStatus::kTryAgain) throw Error(error);
  throw Error(ExitStatus::kUnavailable, error.what());
}

void KubeClient::refuse(const std::string& doing, const http::Response& answer) {
  const bool is_servers = decode_status(answer.body).has_value();
  refuse(doing, answer, is_reached_ && !is_servers ? ExitStatus::kUnavailable : status_of(answer));
}

void KubeClient::refuse(const std::string& doing, const http::Response& answer, ExitStatus status) {
  last_refusal_ = answer.status;
  retry_after_ = retry_after(answer);
  throw Error(status, doing + " Lease " + quoted(name_) + ": " + reason_of(answer));
}

awaitable<std::optional<KubeLease>> KubeClient::get(Deadline deadline) {
  std::string method = "GET";
  std::string path = lease_path(name_);
  std::string nothing;
  http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(nothing), deadline);
  std::optional<KubeLease> lease;
  if (is_success(answer)) {
    lease = read(answer);
  } else if (!is_absent(answer, name_)) {
    // What was permitted is so again: some servers don't know the roles yet in the first moments
    // after their start.
    refuse("get", answer, is_reached_ ? ExitStatus::kUnavailable : status_of(answer));
  }
  is_reached_ = true;
  co_return lease;
}

awaitable<http::Response> KubeClient::put(KubeLease seen, KubeClaim claim, Deadline deadline) {
  std::string method = "PUT";
  std::string path = lease_path(name_);
  std::string body = encode_lease(seen, claim);
  http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(body), deadline);
  co_return answer;
}

// Whatever else is changed in a Lease, by whomever, does not renew it.
void KubeClient::note(const KubeLease& lease) {
  // At the highest number there is, it is counted on from what somebody has set it to.
  const bool is_full = most_transitions_ >= kMostTransitions;
  most_transitions_ = is_full ? lease.transitions : std::max(most_transitions_, lease.transitions);
  const auto claim = [](const KubeLease& of) {
    return std::tie(of.holder, of.renew_time, of.acquire_time, of.transitions, of.duration);
  };
  const bool is_known = seen_ && !seen_->is_deleted && claim(seen_->lease) == claim(lease);
  const bool is_same_hold = seen_ && seen_->lease.holder == lease.holder;
  const seconds longest =
      std::max(is_same_hold ? seen_->longest : seconds(0), lease.duration.value_or(duration_));
  seen_ = Seen{lease, is_known ? seen_->since : BootClock::now(), longest};
}

// It may have been renewed just before, and not been seen then.
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

Deadline KubeClient::request_deadline() const {
  const Deadline deadline = Deadline::after(kRequestTime);
  return is_reached_ || !reach_by_ ? deadline : deadline.sooner(*reach_by_);
}

Duration KubeClient::spread(Duration time) {
  return std::uniform_int_distribution<Duration::rep>(time.count() / 2, time.count())(random_) *
         Duration(1);
}

awaitable<std::optional<Lease>> KubeClient::take() {
  const auto granted_at = system_clock::now();
  const std::uint64_t generation = most_transitions_ + 1;
  if (generation > kMostTransitions) {
    throw Error(ExitStatus::kUnavailable, "update Lease " + quoted(name_) +
                                              ": leaseTransitions is " +
                                              std::to_string(most_transitions_) +
                                              ", the maximum: an administrator has to lower it");
  }
  const KubeClaim claim{identity_, duration_, generation, granted_at, granted_at};
  // An answer that takes longer than that comes too late to hold anything by it.
  const Deadline deadline = request_deadline().sooner(Deadline::after(Duration(duration_) / 2));
  const bool might_be_ours = std::exchange(may_be_ours_, true);
  const BootClock::time_point sent = BootClock::now();
  http::Response answer;
  if (seen_) {
    KubeLease seen = seen_->lease;
    answer = co_await put(std::move(seen), claim, deadline);
  } else {
    std::string method = "POST";
    std::string path = leases_path(name_);
    std::string body = encode_lease(name_, claim);
    answer = co_await ask(std::move(method), std::move(path), std::move(body), deadline);
  }
  if (is_success(answer)) {
    KubeLease lease = read(answer);
    if (lease.holder != identity_ || lease.transitions != generation ||
        ttl_of(lease) == Duration::zero()) {
      throw Error(ExitStatus::kProtocol,
                  "update Lease " + quoted(name_) + ": the API server answered with another one");
    }
    const Lease granted{generation, granted_at, {sent, ttl_of(lease)}};
    note(lease);
    held_ = std::move(lease);
    generation_ = generation;
    co_return granted;
  }
  // A server that has failed may have done it all the same.
  if (answer.status < 500) may_be_ours_ = might_be_ours;
  if (answer.status == 409 || (seen_ && is_absent(answer, name_))) co_return std::nullopt;
  if (answer.status == 404 && says_no_namespace(answer.body, name_)) {
    throw Error(ExitStatus::kNoInput, "create Lease " + quoted(name_) + ": " + reason_of(answer));
  }
  refuse(seen_ ? "update" : "create", answer);
}

Duration KubeClient::ttl_of(const KubeLease& lease) const {
  return std::min(duration_, lease.duration.value_or(seconds(0)));
}

awaitable<void> KubeClient::wait_until_free() {
  // Looked at again now and then: it is later where somebody has edited the Lease meanwhile.
  for (;;) {
    const Duration left = base::time_until(free_at(*seen_));
    if (left <= Duration::zero()) co_return;
    co_await loop::pause_for(std::min(left, kLookInterval));
  }
}

// One watch for many changes, until the Lease is free: a connection for each would be one for each
// renewal, from everybody who waits.
awaitable<KubeClient::Next> KubeClient::watch() {
  const Duration limit = spread(kLongestWatch);
  std::string refusal;
  net::LineBuffer lines(static_cast<std::size_t>(kMostKubeAnswer));
  const BootClock::time_point begin = BootClock::now();
  retry_after_.reset();
  http::Response answer;
  try {
    http::FetchOptions options = options_for(config_);
    options.response_limit = kMostWatched;
    options.on_data = [&](std::string_view piece) {
      refusal += piece.substr(0, kMostRefusal - std::min(kMostRefusal, refusal.size()));
      lines.append(piece);
      while (const std::optional<std::string> line = lines.take_line()) {
        const WatchEvent event = decode_watch_event(*line, name_);
        if (event.kind == WatchEvent::Kind::kLookAnew) return false;
        if (event.kind == WatchEvent::Kind::kBookmark) continue;
        note(event.lease);
        if (free_at(*seen_) <= BootClock::now()) return false;
      }
      return true;
    };
    const std::string url = config_.server + watch_path(name_, seen_->lease.resource_version,
                                                        std::chrono::ceil<seconds>(limit));
    const asio::any_io_executor loop = co_await asio::this_coro::executor;
    awaitable<http::Response> fetch =
        http::async_fetch("GET", url, Deadline::after(limit), std::move(options));
    auto either = asio::experimental::make_parallel_group(
        asio::co_spawn(loop, std::move(fetch), asio::deferred),
        asio::co_spawn(loop, wait_until_free(), asio::deferred));
    auto [order, failure, got, broken_off] = co_await std::move(either).async_wait(
        asio::experimental::wait_for_one(), asio::use_awaitable);
    if (order[0] == 0 && failure) std::rethrow_exception(failure);
    if (order[0] == 1 && broken_off) std::rethrow_exception(broken_off);
    if (order[0] == 1) co_return Next::kTake;
    answer = std::move(got);
  } catch (const Error& error) {
    // The longest watch is over.
    if (error.status() == ExitStatus::kTryAgain) co_return Next::kGet;
    // Whatever is wrong with a watch, it can be looked without one.
    throw Error(ExitStatus::kUnavailable, error.what());
  }
  answer.body = refusal;
  if (answer.status == 403) {
    if (!watch_again_) {
      os::log(os::LogLevel::kWarning, "watch Lease {}: {}; polling it every second instead",
              quoted(name_), reason_of(answer));
    }
    watch_again_ = BootClock::now() + kWatchAgain;
    co_return Next::kGet;
  }
  if (answer.status != 200 && answer.status != 410) {
    refuse("watch", answer, ExitStatus::kUnavailable);
  }
  watch_again_.reset();
  co_return BootClock::now() - begin < kLookInterval ? Next::kPause : Next::kGet;
}

// One step; nullopt: it goes on with `next`.
awaitable<std::optional<Lease>> KubeClient::look_and_take(Next& next) {
  if (next != Next::kTake) {
    std::optional<KubeLease> lease = co_await get(request_deadline());
    if (lease) {
      note(*lease);
    } else {
      note_absence();
    }
  }
  // Whatever comes now, it is looked at again unless this says otherwise.
  next = Next::kGet;
  const BootClock::time_point free = seen_ ? free_at(*seen_) : BootClock::time_point::min();
  const BootClock::time_point now = BootClock::now();
  if (free > now) {
    if (seen_->is_deleted || (watch_again_ && now < *watch_again_)) {
      co_await loop::pause_for(std::min<Duration>(free - now, kLookInterval));
      co_return std::nullopt;
    }
    next = co_await watch();
    // Also without having heard anything: the update says whether that is so.
    if (BootClock::now() >= free_at(*seen_)) next = Next::kTake;
    co_return std::nullopt;
  }
  if (seen_ && seen_->is_deleted) seen_.reset();
  std::optional<Lease> lease = co_await take();
  if (!lease) next = Next::kPause;
  co_return lease;
}

awaitable<Lease> KubeClient::acquire() {
  if (!reach_by_) reach_by_ = Deadline::after(kFirstContact);
  held_.reset();
  Next next = Next::kGet;
  Duration pause = kFirstPause;
  // What was last told of it.
  std::string told;
  for (;;) {
    std::optional<Lease> lease;
    std::optional<Error> trouble;
    try {
      lease = co_await look_and_take(next);
    } catch (const Error& error) {
      if (!is_transient(error)) throw;
      trouble = error;
    }
    if (lease) co_return *lease;
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (trouble && state.cancelled() != asio::cancellation_type::none) throw *trouble;
    const std::string what = trouble ? trouble->what() : "";
    if (trouble && is_reached_ && what != told) {
      os::log(os::LogLevel::kWarning, "{}; retrying", what);
    }
    told = what;
    if (trouble || next == Next::kPause) {
      Duration time = spread(pause);
      if (trouble && retry_after_) time = std::max(time, *retry_after_);
      if (trouble && !is_reached_ && time >= *reach_by_->remaining()) {
        const bool is_stranger = last_refusal_ == 401;
        throw Error(is_stranger ? ExitStatus::kNotPermitted : ExitStatus::kUnavailable, what);
      }
      pause = std::min(pause * 2, kLongestPause);
      next = Next::kGet;
      co_await loop::pause_for(time);
    } else {
      pause = kFirstPause;
    }
  }
}

awaitable<std::variant<Renewal, LeaseEnded>> KubeClient::renew(Deadline deadline) {
  using Answer = std::variant<Renewal, LeaseEnded>;
  const auto ended = [](const std::string& reason) {
    return Answer(LeaseEnded{ExitStatus::kTryAgain, reason});
  };
  Duration pause = kFirstPause;
  for (;;) {
    if (!held_) {
      std::optional<KubeLease> lease = co_await get(deadline);
      if (!lease) co_return ended("the Lease was deleted");
      note(*lease);
      if (lease->holder.empty()) co_return ended("it was released by another process");
      if (lease->holder != identity_) {
        co_return ended(base::quoted(id_of_identity(lease->holder)) + " has taken it");
      }
      held_ = std::move(lease);
    }
    // Known again when there is an answer.
    KubeLease seen = *std::exchange(held_, std::nullopt);
    const KubeClaim claim{identity_, duration_, generation_, std::nullopt, system_clock::now()};
    const BootClock::time_point sent = BootClock::now();
    http::Response answer = co_await put(std::move(seen), claim, deadline);
    if (is_success(answer)) {
      KubeLease lease = read(answer);
      if (lease.holder != identity_) continue;
      const Renewal renewal{sent, ttl_of(lease)};
      if (renewal.ttl == Duration::zero()) {
        co_return Answer(LeaseEnded{ExitStatus::kProtocol, "the Lease has no duration"});
      }
      note(lease);
      held_ = std::move(lease);
      co_return Answer(renewal);
    }
    if (is_absent(answer, name_)) co_return ended("the Lease was deleted");
    Duration time = spread(pause);
    if (answer.status == 429) time = std::max(time, retry_after(answer).value_or(time));
    if ((answer.status != 409 && answer.status != 429) || time >= *deadline.remaining()) {
      refuse("renew", answer);
    }
    pause = std::min(pause * 2, kLongestPause);
    co_await loop::pause_for(time);
  }
}

awaitable<void> KubeClient::release(Deadline deadline) {
  Duration pause = kFirstPause;
  for (;;) {
    if (!may_be_ours_) co_return;
    std::optional<Error> trouble;
    try {
      if (!held_) held_ = co_await get(deadline);
      if (!held_ || held_->holder != identity_) {
        may_be_ours_ = false;
        held_.reset();
        co_return;
      }
      KubeLease seen = *std::exchange(held_, std::nullopt);
      const std::uint64_t generation = seen.transitions;
      const KubeClaim nobody{"", seconds(1), generation, std::nullopt, system_clock::now()};
      http::Response answer = co_await put(std::move(seen), nobody, deadline);
      if (is_success(answer) || is_absent(answer, name_)) may_be_ours_ = false;
      if (may_be_ours_) refuse("release", answer);
    } catch (const Error& error) {
      trouble = error;
    }
    if (!trouble) continue;
    const Duration time = spread(pause);
    if (time >= *deadline.remaining()) throw *trouble;
    pause = std::min(pause * 2, kLongestPause);
    co_await loop::pause_for(time);
  }
}

}  // namespace

std::unique_ptr<LeaseClient> make_kube_client(const LockUri& uri, const std::string& id) {
  return std::make_unique<KubeClient>(uri, id);
}

LockStatus ask_kube(const LockUri& uri, const Deadline& deadline) {
  const LeaseName name = name_of(uri);
  const std::string what = "get Lease " + quoted(name);
  const KubeConfig config = find_kube_config(uri);
  const http::FetchOptions options = options_for(config);
  const http::Response answer =
      http::fetch("GET", config.server + lease_path(name), deadline, options);
  LockStatus status;
  status.path = uri.path;
  if (is_absent(answer, name)) return status;
  if (!is_success(answer)) {
    const bool is_stranger = answer.status == 401;
    throw Error(is_stranger ? ExitStatus::kNotPermitted : status_of(answer),
                what + ": " + reason_of(answer));
  }
  const KubeLease lease = decode_lease(answer.body, name);
  if (lease.transitions > 0) status.last_generation = lease.transitions;
  const auto renewed = parse_micro_time(lease.renew_time);
  const Duration own_duration = uri.network.ttl.value_or(kDefaultLeaseDuration);
  const Duration duration = lease.duration ? Duration(*lease.duration) : own_duration;
  // Whoever wrote that may have another clock, and a lock that is held is never told to be free.
  const bool is_over = renewed && system_clock::now() - *renewed >= duration + kClocksApart;
  status.held = !lease.holder.empty() && !is_over;
  if (!status.held) return status;
  status.holder = id_of_identity(lease.holder);
  GrantRecord& record = status.record.emplace();
  record.holder = status.holder;
  record.generation = lease.transitions;
  if (const auto acquired = parse_micro_time(lease.acquire_time)) {
    record.granted_at = text::format_time(*acquired);
  }
  return status;
}

}  // namespace fo::lock
