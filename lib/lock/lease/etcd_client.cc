#include "lock/lease/etcd_client.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "etcd/client.h"
#include "lock/lease/etcd_queue.h"
#include "lock/lease/lease_times.h"
#include "loop/backoff.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "os/file/random.h"
#include "os/process/process.h"
#include "text/time_text.h"

namespace fo::lock {
namespace {

using base::BootClock;
using base::Deadline;
using base::Duration;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

// The timeout of a request while no lease is about to end.
constexpr Duration kMaxRequestTime = std::chrono::seconds(5);
// A silent connection is closed after this time.
constexpr Duration kMaxWatchTime = std::chrono::seconds(30);
// After a watch that ended sooner without an event, the next query is delayed.
constexpr Duration kMinWatchTime = std::chrono::milliseconds(100);

// A random lease id of 63 bits; never 0, which means none.
etcd::LeaseId random_lease() {
  etcd::LeaseId lease = 0;
  while (lease == 0) {
    lease =
        os::random_bits() & static_cast<etcd::LeaseId>(std::numeric_limits<std::int64_t>::max());
  }
  return lease;
}

etcd::Config config_of(const LockUri::Network& network) {
  return {network.servers, network.tls, network.user, network.password_file};
}

class EtcdClient final : public LeaseClient {
 public:
  EtcdClient(const LockUri& uri, const std::string& id)
      : etcd_(config_of(uri.network)), ttl_(uri.network.ttl.value_or(kDefaultEtcdTtl)) {
    position_.key = uri.network.key;
    who_.id = id;
    who_.host = os::host_name();
    who_.pid = static_cast<std::uint64_t>(::getpid());
  }

  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override {
    const bool is_alive = co_await keep_alive(deadline);
    if (!is_alive) co_return LeaseEnded{ExitStatus::kTryAgain, "the lease expired or was lost"};
    const etcd::Outcome looked = co_await etcd_.commit(check_position(position_), deadline);
    if (!looked.succeeded) {
      position_.created = 0;
      co_return LeaseEnded{ExitStatus::kTryAgain, "the key was deleted"};
    }
    co_return renewal_;
  }

 private:
  // Certificates, passwords and proxies are replaced at times, so every error is transient once
  // this contender was in the queue.
  awaitable<Step> advance() override {
    try {
      co_return co_await step();
    } catch (const Error& error) {
      if (!is_reached_ || loop::is_transient(error)) throw;
      throw Error(ExitStatus::kUnavailable, error.what());
    }
  }

  void begin() override { revoked_ = 0; }

  awaitable<bool> try_release(Deadline deadline) override {
    if (position_.lease != 0) {
      revoked_ = position_.lease;
      may_come_ = !is_granted_;
      forget();
    }
    if (revoked_ == 0) co_return true;
    const auto as_of = co_await etcd_.revoke_lease(revoked_, deadline);
    const bool is_over = as_of || !std::exchange(may_come_, false);
    if (is_over) revoked_ = 0;
    co_return is_over;
  }

  [[nodiscard]] bool is_reached() const override { return is_reached_; }

  [[nodiscard]] Duration max_pause() const override {
    return std::min(LeaseClient::max_pause(), ttl_ / 10);
  }

  // A step towards the lock, or a wait for its next chance.
  awaitable<Step> step() {
    bool is_alive = true;
    if (!is_granted_) {
      is_alive = co_await request_lease();
    } else if (BootClock::now() >= LeaseTimes(renewal_).renew_at()) {
      is_alive = co_await keep_alive(request_deadline());
    }
    if (!is_alive) co_return Next::kAfterPause;
    if (position_.created == 0) {
      const auto entered = co_await commit(enter(position_, who_));
      if (!entered) co_return Next::kAfterPause;
      position_.created = read_enter(*entered, position_);
      is_reached_ = true;
    }
    if (BootClock::now() < claim_from_) {
      const auto next = std::min(claim_from_, LeaseTimes(renewal_).renew_at());
      co_await loop::pause_for(base::time_until(next));
      co_return Next::kAtOnce;
    }
    Contender who = who_;
    const auto now = std::chrono::system_clock::now();
    who.granted_at = text::format_time(now);
    const auto claimed = co_await commit(claim(position_, who));
    if (!claimed) co_return Next::kAfterPause;
    const ClaimResult result = read_claim(*claimed, position_);
    switch (result.state) {
      case ClaimResult::State::kGone:
        position_.created = 0;
        co_return Next::kAfterPause;
      case ClaimResult::State::kGranted:
        // Otherwise it is renewed first: this process was suspended, or the answer was late.
        if (BootClock::now() < LeaseTimes(renewal_).lose_at()) {
          co_return Lease{position_.created, now, renewal_};
        }
        break;
      case ClaimResult::State::kWaiting:
        co_await wait_for(result);
        break;
    }
    co_return Next::kAtOnce;
  }

  // nullopt if the lease has ended.
  awaitable<std::optional<etcd::Outcome>> commit(etcd::Transaction transaction) {
    try {
      co_return co_await etcd_.commit(std::move(transaction), request_deadline());
    } catch (const etcd::Refused& refused) {
      if (refused.kind() != etcd::Refusal::Kind::kLeaseNotFound) throw;
    }
    lose();
    co_return std::nullopt;
  }

  // False if the lease has ended. After a lost answer the same id is requested again, so that there
  // is never another lease than the one that release() revokes.
  awaitable<bool> request_lease() {
    if (position_.lease == 0) position_.lease = random_lease();
    const BootClock::time_point sent = BootClock::now();
    const auto ttl = co_await etcd_.grant_lease(position_.lease, ttl_, request_deadline());
    if (!ttl) {
      const bool is_alive = co_await keep_alive(request_deadline());
      co_return is_alive;
    }
    is_granted_ = true;
    renewal_ = {sent, *ttl};
    co_return true;
  }

  // False if the lease has ended.
  awaitable<bool> keep_alive(Deadline deadline) {
    const BootClock::time_point sent = BootClock::now();
    const std::optional<Duration> ttl = co_await etcd_.keep_alive(position_.lease, deadline);
    if (ttl) {
      is_granted_ = true;
      renewal_ = {sent, *ttl};
    } else {
      lose();
    }
    co_return ttl.has_value();
  }

  // Waits until the predecessor has left, or a renewal or a query is due.
  awaitable<void> wait_for(const ClaimResult& result) {
    const BootClock::time_point begin = BootClock::now();
    const Duration left = base::time_until(LeaseTimes(renewal_).renew_at());
    const Deadline deadline = Deadline::after(std::min(left, kMaxWatchTime));
    etcd::WatchStream stream(watch_deletion(result));
    std::function<bool(const etcd::WatchMessage&)> until_deleted =
        [](const etcd::WatchMessage& message) { return message.events.empty(); };
    co_await etcd_.watch_once(stream, deadline, std::move(until_deleted));
    const bool is_early = BootClock::now() - begin < std::min(left, kMinWatchTime);
    const bool is_again = is_early && result.predecessor == gone_early_;
    gone_early_ = is_early ? result.predecessor : "";
    if (!is_again) co_return;
    const Error failure(ExitStatus::kUnavailable,
                        "query etcd " + base::quoted(etcd_.server()) +
                            ": watches end at once, and nothing has changed");
    etcd_.pass_over();
    throw Error(failure);
  }

  [[nodiscard]] Deadline request_deadline() const {
    return step_deadline(std::min(kMaxRequestTime, ttl_ / 3));
  }

  // The lease has ended. If etcd has lost all leases, another holder may have renewed its own later
  // than this one, so no lock may be claimed before that holder's lease has ended, too.
  void lose() {
    claim_from_ = BootClock::now() + std::max(ttl_, renewal_.ttl);
    forget();
  }

  void forget() {
    position_.lease = 0;
    position_.created = 0;
    is_granted_ = false;
  }

  etcd::Client etcd_;
  Duration ttl_;
  Contender who_;
  // This contender was in the queue.
  bool is_reached_ = false;
  // Its lease is 0 if etcd has no lease of ours, and no pending request can create one.
  QueuePosition position_;
  bool is_granted_ = false;
  // The lease that was granted last.
  Renewal renewal_;
  // A lease that must be revoked; 0 for none. An abandoned request for it may still reach the
  // server later.
  etcd::LeaseId revoked_ = 0;
  bool may_come_ = false;
  BootClock::time_point claim_from_{};
  // The predecessor whose watch ended at once; empty if the last watch did not.
  std::string gone_early_;
};

awaitable<etcd::Found> read_queue(LockUri::Network network, Deadline deadline) {
  etcd::Client client(config_of(network));
  etcd::Range range = list(network.key);
  co_return co_await client.range(std::move(range), deadline);
}

}  // namespace

std::unique_ptr<LeaseClient> make_etcd_client(const LockUri& uri, const std::string& id) {
  return std::make_unique<EtcdClient>(uri, id);
}

LockStatus query_etcd(const LockUri& uri, const Deadline& deadline) {
  const std::vector<Listed> queue = read_list(loop::run_to_end(read_queue(uri.network, deadline)));

  LockStatus status;
  status.path = uri.path;
  status.held = !queue.empty();
  if (queue.empty()) return status;
  const Listed& first = queue.front();
  if (first.lease == 0) {
    throw Error(ExitStatus::kBadData,
                "query etcd for lock " + base::quoted(uri.path) + ": the oldest key " +
                    base::quoted(first.name) +
                    " has no lease: no contender created it, and it stays until it is deleted");
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
