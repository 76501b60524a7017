#include "lock/kube_client.h"

#include <algorithm>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "base/error.h"
#include "http/client.h"
#include "lock/grant.h"
#include "lock/kube_api.h"
#include "lock/kube_config.h"
#include "lock/lockd_protocol.h"
#include "os/log.h"
#include "os/random.h"

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
// Where watching is not permitted, and after a watch that told nothing.
constexpr Duration kLookInterval = seconds(1);
constexpr Duration kFirstPause = milliseconds(20);
constexpr Duration kLongestPause = seconds(2);
constexpr Duration kLongestRetryAfter = seconds(5);

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

// 64 bits of a random UUID, without those that say that it is one.
std::string random_digits() {
  const std::string uuid = os::make_uuid4();
  return uuid.substr(0, 8) + uuid.substr(9, 4) + uuid.substr(32, 4);
}

bool is_success(const http::Response& answer) {
  return answer.status == 200 || answer.status == 201;
}

std::string reason_of(const http::Response& answer) {
  const std::string message = decode_status(answer.body);
  return "the API server answers " + std::to_string(answer.status) +
         (message.empty() ? "" : ": " + message);
}

// What an answer means that says nothing of the Lease: kUnavailable for what may pass.
ExitStatus status_of(const http::Response& answer) {
  switch (answer.status) {
    case 403:
      return ExitStatus::kNotPermitted;
    case 401:
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

awaitable<void> pause_for(Duration time) {
  asio::steady_timer timer(co_await asio::this_coro::executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

class KubeClient final : public LeaseClient {
 public:
  KubeClient(const LockUri& uri, const std::string& id)
      : config_(find_kube_config(uri)),
        name_(name_of(uri)),
        duration_(
            std::chrono::duration_cast<seconds>(uri.network.ttl.value_or(kDefaultLeaseDuration))),
        identity_(make_identity(id, random_digits())),
        random_(std::hash<std::string>{}(identity_)) {}

  awaitable<Lease> acquire() override;
  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override;
  awaitable<void> release(Deadline deadline) override;

 private:
  // What the next look at the Lease is to be.
  enum class Next { kGet, kTake, kPause };

  // A Lease and when it was first seen to be as it is.
  struct Seen {
    KubeLease lease;
    BootClock::time_point since;
  };

  awaitable<http::Response> ask(std::string method, std::string path, std::string body,
                                Deadline deadline);
  // Throws for an answer that is not one of those that its caller knows what to do with.
  [[noreturn]] void refuse(const std::string& doing, const http::Response& answer);
  [[noreturn]] void refuse(const std::string& doing, const http::Response& answer,
                           ExitStatus status);

  // Whether it is worth another try. Certificates and tokens are replaced now and then, and what
  // worked before will again.
  [[nodiscard]] bool may_pass(const Error& error) const;

  // nullopt: there is none.
  awaitable<std::optional<KubeLease>> get(Deadline deadline);
  awaitable<http::Response> put(KubeLease seen, KubeClaim claim, Deadline deadline);

  void note(const KubeLease& lease);
  [[nodiscard]] BootClock::time_point free_at(const Seen& seen) const;
  // Creates the Lease or takes it as it was seen; nullopt when another was faster.
  awaitable<std::optional<Lease>> take();
  awaitable<Next> watch(BootClock::time_point until);
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
  bool may_watch_ = true;
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
  http::FetchOptions options = options_for(config_);
  options.body = std::move(body);
  std::string url = config_.server + path;
  retry_after_.reset();
  http::Response answer =
      co_await http::async_fetch(std::move(method), std::move(url), deadline, std::move(options));
  co_return answer;
}

void KubeClient::refuse(const std::string& doing, const http::Response& answer) {
  refuse(doing, answer, status_of(answer));
}

void KubeClient::refuse(const std::string& doing, const http::Response& answer, ExitStatus status) {
  last_refusal_ = answer.status;
  retry_after_ = retry_after(answer);
  throw Error(status, doing + " Lease " + quoted(name_) + ": " + reason_of(answer));
}

bool KubeClient::may_pass(const Error& error) const {
  return error.status() == ExitStatus::kUnavailable || error.status() == ExitStatus::kTryAgain ||
         (is_reached_ && error.status() == ExitStatus::kConfig);
}

awaitable<std::optional<KubeLease>> KubeClient::get(Deadline deadline) {
  std::string method = "GET";
  std::string path = lease_path(name_);
  std::string nothing;
  http::Response answer =
      co_await ask(std::move(method), std::move(path), std::move(nothing), deadline);
  std::optional<KubeLease> lease;
  if (is_success(answer)) {
    lease = decode_lease(answer.body, name_);
  } else if (answer.status == 403 && is_reached_) {
    // Some servers don't know the roles yet in the first moments after their start.
    refuse("get", answer, ExitStatus::kUnavailable);
  } else if (answer.status != 404) {
    refuse("get", answer);
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

void KubeClient::note(const KubeLease& lease) {
  most_transitions_ = std::max(most_transitions_, lease.transitions);
  const bool is_known = seen_ && seen_->lease.resource_version == lease.resource_version &&
                        seen_->lease.holder == lease.holder &&
                        seen_->lease.renew_time == lease.renew_time;
  if (!is_known) seen_ = Seen{lease, BootClock::now()};
}

BootClock::time_point KubeClient::free_at(const Seen& seen) const {
  const std::string& holder = seen.lease.holder;
  if (holder.empty() || holder == identity_) return seen.since;
  return seen.since + seen.lease.duration.value_or(duration_);
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
    throw Error(ExitStatus::kProtocol,
                "update Lease " + quoted(name_) + ": leaseTransitions can't be counted on");
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
    KubeLease lease = decode_lease(answer.body, name_);
    if (lease.holder != identity_ || lease.transitions != generation) {
      throw Error(ExitStatus::kProtocol,
                  "update Lease " + quoted(name_) + ": the API server answers with another one");
    }
    note(lease);
    held_ = std::move(lease);
    generation_ = generation;
    const Lease granted{generation, granted_at, {sent, duration_}};
    co_return granted;
  }
  // A server that has failed may have done it all the same.
  if (answer.status < 500) may_be_ours_ = might_be_ours;
  if (answer.status == 409 || (answer.status == 404 && seen_)) co_return std::nullopt;
  if (answer.status == 404) {
    throw Error(ExitStatus::kNoInput, "create Lease " + quoted(name_) + ": " + reason_of(answer));
  }
  refuse(seen_ ? "update" : "create", answer);
}

awaitable<KubeClient::Next> KubeClient::watch(BootClock::time_point until) {
  const Duration left = std::min<Duration>(until - BootClock::now(), kLongestWatch);
  const Deadline deadline = Deadline::after(left);
  if (!may_watch_) {
    co_await pause_for(std::min(left, kLookInterval));
    co_return Next::kGet;
  }
  http::FetchOptions options = options_for(config_);
  LineBuffer lines(static_cast<std::size_t>(kMostKubeAnswer));
  std::string refusal;
  std::optional<WatchEvent> event;
  options.on_data = [&](std::string_view piece) {
    refusal += piece;
    lines.append(piece);
    while (const std::optional<std::string> line = lines.take_line()) {
      event = decode_watch_event(*line, name_);
      if (event->kind != WatchEvent::Kind::kBookmark) return false;
    }
    return true;
  };
  std::string method = "GET";
  std::string url = config_.server + watch_path(name_, seen_->lease.resource_version,
                                                std::chrono::ceil<seconds>(left));
  const BootClock::time_point begin = BootClock::now();
  retry_after_.reset();
  http::Response answer;
  try {
    answer =
        co_await http::async_fetch(std::move(method), std::move(url), deadline, std::move(options));
  } catch (const Error& error) {
    // Whatever is wrong with a watch, it can be looked without one.
    if (error.status() == ExitStatus::kProtocol)
      throw Error(ExitStatus::kUnavailable, error.what());
    if (error.status() != ExitStatus::kTryAgain) throw;
    co_return Next::kGet;
  }
  if (answer.status == 403) {
    may_watch_ = false;
    answer.body = refusal;
    os::log(os::LogLevel::kWarning, "watch Lease {}: {}; asked every second instead", quoted(name_),
            reason_of(answer));
    co_return Next::kGet;
  }
  if (answer.status == 200 && event && event->kind == WatchEvent::Kind::kChanged) {
    note(event->lease);
    co_return Next::kTake;
  }
  if (answer.status != 200 && answer.status != 410) {
    answer.body = refusal;
    refuse("watch", answer, ExitStatus::kUnavailable);
  }
  co_return BootClock::now() - begin < kLookInterval ? Next::kPause : Next::kGet;
}

// One step; nullopt: it goes on with `next`.
awaitable<std::optional<Lease>> KubeClient::look_and_take(Next& next) {
  if (next != Next::kTake) {
    std::optional<KubeLease> lease = co_await get(request_deadline());
    if (lease) {
      note(*lease);
    } else {
      seen_.reset();
    }
  }
  // Whatever comes now, it is looked at again unless this says otherwise.
  next = Next::kGet;
  const BootClock::time_point free = seen_ ? free_at(*seen_) : BootClock::time_point::min();
  if (free > BootClock::now()) {
    next = co_await watch(free);
    // Without having heard anything: the update says whether that is so.
    if (BootClock::now() >= free_at(*seen_)) next = Next::kTake;
    co_return std::nullopt;
  }
  std::optional<Lease> lease = co_await take();
  if (!lease) next = Next::kPause;
  co_return lease;
}

awaitable<Lease> KubeClient::acquire() {
  if (!reach_by_) reach_by_ = Deadline::after(kFirstContact);
  held_.reset();
  Next next = Next::kGet;
  Duration pause = kFirstPause;
  bool is_troubled = false;
  for (;;) {
    std::optional<Lease> lease;
    std::optional<Error> trouble;
    try {
      lease = co_await look_and_take(next);
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      trouble = error;
    }
    if (lease) co_return *lease;
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (trouble && state.cancelled() != asio::cancellation_type::none) throw *trouble;
    if (trouble && is_reached_ && !is_troubled) {
      os::log(os::LogLevel::kWarning, "{}; trying again", trouble->what());
    }
    is_troubled = trouble.has_value();
    if (trouble || next == Next::kPause) {
      Duration time = spread(pause);
      if (trouble && retry_after_) time = std::max(time, *retry_after_);
      if (trouble && !is_reached_ && time >= *reach_by_->remaining()) {
        const bool is_stranger = last_refusal_ == 401;
        throw Error(is_stranger ? ExitStatus::kNotPermitted : ExitStatus::kUnavailable,
                    trouble->what());
      }
      pause = std::min(pause * 2, kLongestPause);
      next = Next::kGet;
      co_await pause_for(time);
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
      if (lease->holder.empty()) co_return ended("somebody else gave it up");
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
      KubeLease lease = decode_lease(answer.body, name_);
      if (lease.holder != identity_) continue;
      note(lease);
      held_ = std::move(lease);
      const Renewal renewal{sent, duration_};
      co_return Answer(renewal);
    }
    if (answer.status == 404) co_return ended("the Lease was deleted");
    Duration time = spread(pause);
    if (answer.status == 429) time = std::max(time, retry_after(answer).value_or(time));
    if ((answer.status != 409 && answer.status != 429) || time >= *deadline.remaining()) {
      refuse("renew", answer);
    }
    pause = std::min(pause * 2, kLongestPause);
    co_await pause_for(time);
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
      if (is_success(answer) || answer.status == 404) may_be_ours_ = false;
      if (may_be_ours_) refuse("release", answer);
    } catch (const Error& error) {
      trouble = error;
    }
    if (!trouble) continue;
    const Duration time = spread(pause);
    if (time >= *deadline.remaining()) throw *trouble;
    pause = std::min(pause * 2, kLongestPause);
    co_await pause_for(time);
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
  if (answer.status == 404) return status;
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
  const bool is_over = renewed && system_clock::now() - *renewed >= duration;
  status.held = !lease.holder.empty() && !is_over;
  if (!status.held) return status;
  status.holder = id_of_identity(lease.holder);
  GrantRecord& record = status.record.emplace();
  record.holder = status.holder;
  record.generation = lease.transitions;
  if (const auto acquired = parse_micro_time(lease.acquire_time)) {
    record.granted_at = format_time(*acquired);
  }
  return status;
}

}  // namespace fo::lock
