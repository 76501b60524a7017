#include "lock/lease/etcd_client.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/client.h"
#include "lock/lease/etcd_api.h"
#include "lock/lease/lease_times.h"
#include "loop/pause.h"
#include "net/line_buffer.h"
#include "os/file.h"
#include "os/log.h"
#include "os/process.h"
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

// Of one request while there is no lease whose end is near.
constexpr Duration kLongestRequest = std::chrono::seconds(5);
// A connection that is dead without a word is left after that.
constexpr Duration kLongestWatch = std::chrono::seconds(30);
// One that ends sooner, with nothing changed, is not worth asking again at once.
constexpr Duration kShortestWatch = std::chrono::milliseconds(100);
// Between tries; it doubles up to a tenth of the lease, and no further than the second.
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(1);
constexpr base::ByteCount kMostPasswordBytes = 4096;

// Of the 2^63 that there are, without 0, which stands for none.
etcd::LeaseId random_lease() {
  etcd::LeaseId lease = 0;
  while (lease == 0) {
    lease =
        os::random_bits() & static_cast<etcd::LeaseId>(std::numeric_limits<std::int64_t>::max());
  }
  return lease;
}

// What a server refused.
class Refused final : public Error {
 public:
  Refused(const std::string& server, const etcd::Refusal& refusal)
      : Error(status_of(refusal.kind),
              "ask etcd " + base::quoted(server) + ": " + base::quoted(refusal.reason)),
        kind_(refusal.kind) {}

  [[nodiscard]] etcd::Refusal::Kind kind() const { return kind_; }

 private:
  static ExitStatus status_of(etcd::Refusal::Kind kind) {
    switch (kind) {
      case etcd::Refusal::Kind::kNotAuthenticated:
      case etcd::Refusal::Kind::kNotPermitted:
        return ExitStatus::kNotPermitted;
      case etcd::Refusal::Kind::kMayPass:
        return ExitStatus::kUnavailable;
      case etcd::Refusal::Kind::kLeaseNotFound:
      case etcd::Refusal::Kind::kLeaseExists:
      case etcd::Refusal::Kind::kNoUsers:
      case etcd::Refusal::Kind::kOther:
        break;
    }
    return ExitStatus::kProtocol;
  }

  etcd::Refusal::Kind kind_;
};

// The servers of one cluster, any of which answers for all.
class Cluster {
 public:
  explicit Cluster(LockUri::Network network) : network_(std::move(network)) {}

  // What `decode` makes of the answer; nullopt when the lease that it is about is gone or, where a
  // new one is asked for, there already. A server that does not give one is passed over, for this
  // request and those to come; when all are, what may pass is thrown rather than what may not.
  template <typename Decode>
  awaitable<std::optional<std::invoke_result_t<Decode, std::string_view>>> ask(
      etcd::Request request, Deadline deadline, Decode decode) {
    std::optional<Error> failure;
    const auto note = [&](const Error& error) {
      if (!failure || (is_transient(error) && !is_transient(*failure))) failure = error;
      pass_over();
    };
    for (std::size_t left = network_.servers.size(); left > 0; --left) {
      const auto share = deadline.remaining();
      const Deadline own =
          share ? Deadline::after(*share / static_cast<Duration::rep>(left)) : deadline;
      try {
        const std::string answer = co_await ask_one(request, own);
        co_return decode(answer);
      } catch (const Refused& refused) {
        if (refused.kind() == etcd::Refusal::Kind::kLeaseNotFound ||
            refused.kind() == etcd::Refusal::Kind::kLeaseExists) {
          co_return std::nullopt;
        }
        note(refused);
      } catch (const Error& error) {
        note(error);
      }
    }
    throw Error(*failure);
  }

  // The next one is asked from now on.
  void pass_over() { current_ = (current_ + 1) % network_.servers.size(); }

  // Until the key is deleted, or what happened to it is not known any more, or the deadline.
  awaitable<void> watch(etcd::Request request, Deadline deadline) {
    http::FetchOptions options = options_for(request);
    net::LineBuffer lines(etcd::kMostEventBytes);
    bool is_over = false;
    std::string trouble;
    options.on_data = [&](std::string_view piece) {
      lines.append(piece);
      for (std::optional<std::string> line; (line = lines.take_line());) {
        const etcd::Event event = etcd::decode_event(*line);
        if (event.kind == etcd::Event::Kind::kNothing) continue;
        is_over = event.kind != etcd::Event::Kind::kEnded;
        if (!is_over) trouble = "the watch was ended: " + base::quoted(event.reason);
        return false;
      }
      return true;
    };
    const std::string url = server() + request.path;
    std::optional<http::Response> response;
    try {
      response = co_await http::async_fetch("POST", url, deadline, std::move(options));
    } catch (const Error& error) {
      const bool is_time = error.status() == ExitStatus::kTryAgain && deadline.expired();
      if (!is_time) {
        pass_over();
        throw;
      }
    }
    if (is_over || !response) co_return;
    if (trouble.empty()) {
      trouble = "the watch ended early, with HTTP status " + std::to_string(response->status);
    }
    const Error failure(ExitStatus::kUnavailable,
                        "ask etcd " + base::quoted(server()) + ": " + trouble);
    pass_over();
    throw Error(failure);
  }

  [[nodiscard]] const std::string& server() const { return network_.servers[current_]; }

 private:
  [[nodiscard]] http::FetchOptions options_for(const etcd::Request& request) const {
    http::FetchOptions options;
    options.body = request.body;
    options.response_limit = etcd::kMostAnswerBytes;
    if (server().starts_with("https:")) options.tls = network_.tls;
    if (!token_.empty()) options.headers.emplace_back("Authorization", token_);
    // A member that is cut off from the others says so, and ends its watches, instead of waiting.
    options.headers.emplace_back("Grpc-Metadata-hasleader", "true");
    return options;
  }

  awaitable<std::string> ask_one(const etcd::Request& request, Deadline deadline) {
    const bool is_new = token_.empty() && !network_.user.empty();
    if (is_new) co_await authenticate(deadline);
    try {
      co_return co_await post(request, deadline);
    } catch (const Refused& refused) {
      const bool is_old =
          refused.kind() == etcd::Refusal::Kind::kNotAuthenticated && !network_.user.empty();
      if (!is_old || is_new) throw;
    }
    co_await authenticate(deadline);
    co_return co_await post(request, deadline);
  }

  awaitable<void> authenticate(Deadline deadline) {
    token_.clear();
    std::string password = os::read_file(network_.password_file, kMostPasswordBytes);
    if (password.ends_with('\n')) password.pop_back();
    const etcd::Request request = etcd::authenticate(network_.user, password);
    try {
      const std::string answer = co_await post(request, deadline);
      token_ = etcd::decode_token(answer);
    } catch (const Refused& refused) {
      if (refused.kind() != etcd::Refusal::Kind::kNoUsers) throw;
    }
  }

  awaitable<std::string> post(const etcd::Request& request, Deadline deadline) {
    const std::string url = server() + request.path;
    http::FetchOptions options = options_for(request);
    http::Response response = co_await http::async_fetch("POST", url, deadline, std::move(options));
    const auto refusal = etcd::find_refusal(response.status, response.body);
    if (refusal) throw Refused(server(), *refusal);
    co_return std::move(response.body);
  }

  LockUri::Network network_;
  std::size_t current_ = 0;
  // Of the user; empty: none yet, or etcd knows no users.
  std::string token_;
};

class EtcdClient final : public LeaseClient {
 public:
  EtcdClient(const LockUri& uri, const std::string& id)
      : cluster_(uri.network), ttl_(uri.network.ttl.value_or(kDefaultEtcdTtl)) {
    place_.key = uri.network.key;
    who_.id = id;
    who_.host = os::host_name();
    who_.pid = static_cast<std::uint64_t>(::getpid());
  }

  awaitable<Lease> acquire() override {
    if (!first_contact_) first_contact_ = Deadline::after(kFirstContact);
    const Duration longest_pause = std::clamp(ttl_ / 10, kFirstPause, kLongestPause);
    Duration pause = kFirstPause;
    std::string told;
    for (;;) {
      std::optional<Error> trouble;
      try {
        const std::optional<Lease> lease = co_await advance();
        if (lease) co_return *lease;
      } catch (const Error& error) {
        trouble = error;
      }
      if (trouble && !is_worth_a_try(*trouble)) throw Error(*trouble);
      if (trouble && !is_reached_ && pause >= *first_contact_->remaining()) {
        throw Error(ExitStatus::kUnavailable, trouble->what());
      }
      const std::string what = trouble ? trouble->what() : "";
      if (is_reached_ && !what.empty() && what != told) {
        os::log(os::LogLevel::kWarning, "{}; retrying", what);
      }
      told = what;
      if (!trouble && place_.created != 0) {
        pause = kFirstPause;
        continue;
      }
      co_await loop::pause_for(pause);
      pause = std::min(pause * 2, longest_pause);
    }
  }

  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override {
    const bool is_alive = co_await keep_alive(deadline);
    if (!is_alive) co_return LeaseEnded{ExitStatus::kTryAgain, "the lease expired or was lost"};
    const auto is_there = co_await cluster_.ask(etcd::look(place_), deadline, etcd::decode_look);
    if (!is_there.value_or(false)) {
      place_.created = 0;
      co_return LeaseEnded{ExitStatus::kTryAgain, "the key was deleted"};
    }
    co_return renewal_;
  }

  awaitable<void> release(Deadline deadline) override {
    if (place_.lease == 0) co_return;
    const etcd::Request request = etcd::revoke_lease(place_.lease);
    // A request for it that nobody waits for any more may be overtaken by this one.
    bool may_come = !is_granted_;
    forget();
    for (;;) {
      std::optional<Error> failure;
      bool is_revoked = false;
      try {
        const auto as_of = co_await cluster_.ask(request, deadline, etcd::decode_revoke_lease);
        is_revoked = as_of || !may_come;
        may_come = false;
      } catch (const Error& error) {
        failure = error;
      }
      if (is_revoked) co_return;
      const auto left = deadline.remaining();
      const bool is_late = left && *left < kFirstPause;
      if (failure && (is_late || !is_worth_a_try(*failure))) throw Error(*failure);
      if (is_late) co_return;
      co_await loop::pause_for(kFirstPause);
    }
  }

 private:
  // One step nearer to the lock, and a wait where there is nothing to do.
  awaitable<std::optional<Lease>> advance() {
    bool is_alive = true;
    if (!is_granted_) {
      is_alive = co_await begin();
    } else if (BootClock::now() >= LeaseTimes(renewal_).renew_at()) {
      is_alive = co_await keep_alive(request_deadline());
    }
    if (!is_alive) co_return std::nullopt;
    if (place_.created == 0) {
      const auto created = co_await cluster_.ask(
          etcd::enter(place_, who_), request_deadline(),
          [this](const auto& answer) { return etcd::decode_enter(answer, place_); });
      if (!created) {
        lose();
        co_return std::nullopt;
      }
      place_.created = *created;
      is_reached_ = true;
    }
    if (BootClock::now() < claim_from_) {
      const auto next = std::min(claim_from_, LeaseTimes(renewal_).renew_at());
      co_await loop::pause_for(base::time_until(next));
      co_return std::nullopt;
    }
    etcd::Contender who = who_;
    const auto now = std::chrono::system_clock::now();
    who.granted_at = text::format_time(now);
    const auto turn = co_await cluster_.ask(
        etcd::claim(place_, who), request_deadline(),
        [this](const auto& answer) { return etcd::decode_claim(answer, place_); });
    if (!turn) {
      lose();
      co_return std::nullopt;
    }
    switch (turn->state) {
      case etcd::Turn::State::kGone:
        place_.created = 0;
        break;
      case etcd::Turn::State::kGranted:
        // Else it is renewed first: this process, or the answer, took its time.
        if (BootClock::now() < LeaseTimes(renewal_).lose_at()) {
          co_return Lease{place_.created, now, renewal_};
        }
        break;
      case etcd::Turn::State::kWaiting:
        co_await wait_for(*turn);
        break;
    }
    co_return std::nullopt;
  }

  // False when the lease is gone. One whose answer was lost is asked for by the same name again,
  // so that there is never more than the one that release() knows.
  awaitable<bool> begin() {
    if (place_.lease == 0) place_.lease = random_lease();
    const BootClock::time_point sent = BootClock::now();
    const auto ttl = co_await cluster_.ask(
        etcd::grant_lease(place_.lease, ttl_), request_deadline(),
        [this](const auto& answer) { return etcd::decode_grant_lease(answer, place_.lease); });
    if (!ttl) {
      const bool is_alive = co_await keep_alive(request_deadline());
      co_return is_alive;
    }
    is_granted_ = true;
    renewal_ = {sent, *ttl};
    co_return true;
  }

  // False when the lease is gone.
  awaitable<bool> keep_alive(Deadline deadline) {
    const BootClock::time_point sent = BootClock::now();
    const auto answer = co_await cluster_.ask(
        etcd::keep_alive(place_.lease), deadline,
        [this](const auto& text) { return etcd::decode_keep_alive(text, place_.lease); });
    const std::optional<Duration> ttl = answer.value_or(std::nullopt);
    if (ttl) {
      is_granted_ = true;
      renewal_ = {sent, *ttl};
    } else {
      lose();
    }
    co_return ttl.has_value();
  }

  // Until the one in front of us is gone, or it is time to renew or to ask again.
  awaitable<void> wait_for(const etcd::Turn& turn) {
    const BootClock::time_point begin = BootClock::now();
    const Duration left = base::time_until(LeaseTimes(renewal_).renew_at());
    const Deadline deadline = Deadline::after(std::min(left, kLongestWatch));
    co_await cluster_.watch(etcd::watch_deletion(turn.predecessor, turn.as_of + 1), deadline);
    const bool is_early = BootClock::now() - begin < std::min(left, kShortestWatch);
    const bool is_again = is_early && turn.predecessor == gone_early_;
    gone_early_ = is_early ? turn.predecessor : "";
    if (!is_again) co_return;
    const Error failure(ExitStatus::kUnavailable,
                        "ask etcd " + base::quoted(cluster_.server()) +
                            ": watches end at once, and nothing has changed");
    cluster_.pass_over();
    throw Error(failure);
  }

  [[nodiscard]] Deadline request_deadline() const {
    const Deadline deadline = Deadline::after(std::min(kLongestRequest, ttl_ / 3));
    return is_reached_ || !first_contact_ ? deadline : deadline.sooner(*first_contact_);
  }

  // Certificates, passwords and proxies are replaced now and then,
  // and what worked before will again.
  [[nodiscard]] bool is_worth_a_try(const Error& error) const {
    return is_reached_ || is_transient(error);
  }

  // The lease is gone. etcd may have lost all others as well, whose holders may have renewed theirs
  // later than we did ours: they are to find out before anybody has the lock.
  void lose() {
    claim_from_ = BootClock::now() + std::max(ttl_, renewal_.ttl);
    forget();
  }

  void forget() {
    place_.lease = 0;
    place_.created = 0;
    is_granted_ = false;
  }

  Cluster cluster_;
  Duration ttl_;
  etcd::Contender who_;
  std::optional<Deadline> first_contact_;
  // It was in the queue.
  bool is_reached_ = false;
  // Without a lease where there is nothing of ours, not even an answer that is still to come.
  etcd::Place place_;
  bool is_granted_ = false;
  // Of the lease that was granted last.
  Renewal renewal_;
  BootClock::time_point claim_from_{};
  // The key whose watch ended at once; empty: the last one did not.
  std::string gone_early_;
};

awaitable<std::vector<etcd::Listed>> list_queue(Cluster& cluster, std::string key,
                                                Deadline deadline) {
  auto listed = co_await cluster.ask(etcd::list(key), deadline, etcd::decode_list);
  if (!listed) throw Error(ExitStatus::kProtocol, "list etcd's keys: the answer is about leases");
  co_return *std::move(listed);
}

}  // namespace

std::unique_ptr<LeaseClient> make_etcd_client(const LockUri& uri, const std::string& id) {
  return std::make_unique<EtcdClient>(uri, id);
}

LockStatus ask_etcd(const LockUri& uri, const Deadline& deadline) {
  asio::io_context loop(1);
  Cluster cluster(uri.network);
  std::vector<etcd::Listed> queue;
  std::exception_ptr failure;
  asio::co_spawn(loop, list_queue(cluster, uri.network.key, deadline),
                 [&](std::exception_ptr error, std::vector<etcd::Listed> listed) {
                   failure = std::move(error);
                   queue = std::move(listed);
                 });
  loop.run();
  if (failure) std::rethrow_exception(failure);

  LockStatus status;
  status.path = uri.path;
  status.held = !queue.empty();
  if (queue.empty()) return status;
  const etcd::Listed& first = queue.front();
  if (first.lease == 0) {
    throw Error(ExitStatus::kBadData,
                "ask etcd for lock " + base::quoted(uri.path) + ": the oldest key " +
                    base::quoted(first.name) +
                    " has no lease: no contender made it, and it stays until it is deleted");
  }
  status.holder = first.who.id;
  status.last_generation = first.created;
  GrantRecord& record = status.record.emplace();
  record.holder = first.who.id;
  record.generation = first.created;
  record.granted_at = first.who.granted_at;
  record.host = first.who.host;
  if (first.who.pid <= std::numeric_limits<pid_t>::max()) {
    record.pid = static_cast<pid_t>(first.who.pid);
  }
  for (auto waiter = queue.begin() + 1; waiter != queue.end(); ++waiter) {
    status.waiters.push_back({0, waiter->who.id});
  }
  return status;
}

}  // namespace fo::lock
