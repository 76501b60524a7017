#include "lock/lease/lease_client.h"

#include <algorithm>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/this_coro.hpp>

#include "loop/backoff.h"
#include "loop/pause.h"
#include "os/log.h"

namespace fo::lock {

using base::BootClock;
using base::Deadline;
using base::Duration;
using base::Error;
using boost::asio::awaitable;

Duration LeaseClient::max_pause() const { return kMaxPause; }

Deadline LeaseClient::step_deadline(Duration time) const {
  const Deadline deadline = Deadline::after(time);
  return is_reached() || !reach_by_ ? deadline : deadline.sooner(*reach_by_);
}

awaitable<Lease> LeaseClient::acquire() {
  if (!reach_by_) reach_by_ = Deadline::after(kFirstContact);
  begin();
  loop::Backoff backoff(kFirstPause, std::max(kFirstPause, max_pause()));
  // The last logged reason.
  std::string logged;
  for (;;) {
    std::optional<Postponed> failure;
    const BootClock::time_point begun = BootClock::now();
    Next next = Next::kAfterPause;
    try {
      const Step step = co_await advance();
      if (const auto* lease = std::get_if<Lease>(&step)) co_return *lease;
      next = std::get<Next>(step);
    } catch (const Postponed& error) {
      failure = error;
    } catch (const Error& error) {
      if (!loop::is_transient(error)) throw;
      failure.emplace(error.what(), Duration::zero());
    }
    const auto state = co_await boost::asio::this_coro::cancellation_state;
    if (failure && state.cancelled() != boost::asio::cancellation_type::none) throw *failure;
    const std::string what = failure ? failure->what() : "";
    if (failure && is_reached() && what != logged) {
      os::log(os::LogLevel::kWarning, "{}; retrying", what);
    }
    logged = what;
    // A failure after a long time does not increase the pause.
    if (next == Next::kAtOnce || BootClock::now() - begun > kMaxPause) backoff.reset();
    if (next == Next::kAtOnce) continue;
    const Duration pause = std::max(backoff.next(), failure ? failure->pause() : Duration::zero());
    if (failure && !is_reached() && pause >= *reach_by_->remaining()) {
      throw Error(failure->at_last(), what);
    }
    co_await loop::pause_for(pause);
  }
}

awaitable<void> LeaseClient::release(Deadline deadline) {
  loop::Backoff backoff(kFirstPause, kMaxPause);
  for (;;) {
    std::optional<Error> failure;
    bool is_done = false;
    try {
      is_done = co_await try_release(deadline);
    } catch (const Error& error) {
      failure = error;
    }
    if (is_done) co_return;
    const Duration pause = backoff.next();
    const auto left = deadline.remaining();
    const bool is_late = left && pause >= *left;
    if (failure && (is_late || !loop::is_transient(*failure))) throw Error(*failure);
    if (is_late) co_return;
    co_await loop::pause_for(pause);
  }
}

}  // namespace fo::lock
