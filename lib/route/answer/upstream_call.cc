#include "route/answer/upstream_call.h"

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <utility>

#include "base/error.h"
#include "base/finally.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "route/answer/outcome.h"

namespace fo::route {
namespace {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

// The beginning of a connection's error messages. The code that logs them names the worker.
constexpr char kWhat[] = "forward a request";
// After the deadline of a read, bytes that have arrived are still read for this time, because this
// process may have been suspended.
constexpr base::Duration kLastLook = std::chrono::milliseconds(200);

// A connection that ends so soon after a request was sent on it may have been closed before.
constexpr base::Duration kIdleClose = std::chrono::seconds(1);

// Longer than any engine's context, so that no limit overflows.
constexpr std::uint64_t kMaxPromptTokens = 1'000'000'000;

Deadline deadline_at(TimePoint time) { return Deadline::after(time - Clock::now()); }

// Returns the end of a call that could not connect. After a lack of descriptors, a timeout is no
// fault of the worker.
CallEnd end_of(const base::Error& error, bool was_exhausted) {
  const bool is_late = was_exhausted && error.status() == ExitStatus::kTryAgain;
  if (is_late || base::is_exhausted(error.code())) return CallEnd::kExhausted;
  const bool is_refused =
      error.status() == ExitStatus::kUnavailable || error.status() == ExitStatus::kTryAgain;
  return is_refused ? CallEnd::kRefused : CallEnd::kNotTrusted;
}

const char* reason_of(CallEnd end) {
  if (end == CallEnd::kHung) return "all of its streams are silent";
  if (end == CallEnd::kSilent) return "the stream is silent";
  return end == CallEnd::kNoFirstToken ? "no answer in time" : "the request's deadline has passed";
}

}  // namespace

base::Duration CallTimes::first_token_limit(std::uint64_t prompt_tokens) const {
  const std::uint64_t tokens = std::min(prompt_tokens, kMaxPromptTokens);
  return first_token + std::chrono::milliseconds(tokens * 1000 / prefill_rate);
}

base::Duration CallTimes::stall_limit(base::Duration mean_gap) const {
  return std::max(stall, static_cast<base::Duration::rep>(stall_gaps) * mean_gap);
}

UpstreamCall::UpstreamCall(http::Pool& pool, WorkerPtr worker, Exchange& exchange,
                           const CallTimes& times, std::uint64_t prompt_tokens)
    : pool_(pool),
      worker_(std::move(worker)),
      exchange_(exchange),
      times_(times),
      first_token_limit_(times.first_token_limit(prompt_tokens)) {}

void UpstreamCall::cut() {
  is_cut_ = true;
  if (connection_) connection_->close();
}

// Descriptors or memory may be released at any time, so connecting is tried again as long as a
// worker may take to accept.
awaitable<CallEnd> UpstreamCall::connect(bool is_fresh, Deadline deadline) {
  const Deadline limit = deadline.sooner(Deadline::after(times_.connect));
  CallEnd end = CallEnd::kDone;
  for (;;) {
    const bool was_exhausted = end == CallEnd::kExhausted;
    end = CallEnd::kDone;
    try {
      if (is_fresh) {
        connection_ = co_await pool_.open(worker_->origin, limit, kWhat);
      } else {
        connection_ = co_await pool_.get(worker_->origin, limit, kWhat);
      }
    } catch (const base::Error& error) {
      reason_ = error.what();
      end = end_of(error, was_exhausted);
    }
    if (end == CallEnd::kDone || is_cut_) co_return end;
    if (deadline.expired()) co_return CallEnd::kDeadline;
    if (end != CallEnd::kExhausted || limit.expired()) co_return end;
    co_await loop::pause_for(kExhaustedPause);
    if (limit.expired() && !is_cut_) co_return end;
  }
}

// Returns kDone, or how the call ends if the worker does not accept the request: then the exchange
// has the fault.
awaitable<CallEnd> UpstreamCall::send(const http::RequestHead& head, std::string_view body,
                                      Deadline deadline) {
  const Deadline limit = deadline.sooner(Deadline::after(first_token_limit_));
  CallEnd end = CallEnd::kDone;
  try {
    co_await connection_->send(head, body, limit);
  } catch (const base::Error& error) {
    const bool is_late = error.status() == ExitStatus::kTryAgain;
    end = !is_late             ? CallEnd::kFault
          : deadline.expired() ? CallEnd::kDeadline
                               : CallEnd::kNoFirstToken;
    reason_ = is_late ? reason_of(end) : error.what();
    exchange_.on_broken(reason_);
  }
  co_return end;
}

awaitable<CallEnd> UpstreamCall::run(http::RequestHead head, std::string_view body,
                                     Deadline deadline, Deliver deliver, OnTokens on_tokens) {
  exchange_.begin_attempt();
  began_ = last_token_ = Clock::now();
  // A server may close an idle connection just when it is used again, so a request that failed on
  // one at once, without a byte of an answer, is sent once more, on a new connection.
  for (const bool is_fresh : {false, true}) {
    const CallEnd connected = co_await connect(is_fresh, deadline);
    if (is_cut_) co_return CallEnd::kCut;
    if (connected != CallEnd::kDone) co_return connected;
    const TimePoint begin = Clock::now();
    CallEnd end = CallEnd::kFault;
    try {
      end = co_await send(head, body, deadline);
      if (end == CallEnd::kDone) end = co_await read_answer(deadline, deliver, on_tokens);
    } catch (const boost::system::system_error&) {
      if (!is_cut_) throw;
    }
    if (is_cut_) co_return CallEnd::kCut;
    if (end != CallEnd::kFault || is_fresh || !connection_->is_reused()) co_return end;
    const auto progress = connection_->progress();
    const bool was_idle =
        progress == http::Connection::Progress::kNothingSent ||
        (progress == http::Connection::Progress::kSent && Clock::now() - begin < kIdleClose);
    if (!was_idle) co_return end;
    was_sent_ = progress == http::Connection::Progress::kSent;
    // Its place in the pool may be the last one.
    connection_.reset();
    exchange_.begin_attempt();
  }
  co_return CallEnd::kFault;
}

UpstreamCall::Limit UpstreamCall::next_limit(Deadline deadline) const {
  Limit limit{Deadline::never(), CallEnd::kSilent};
  const auto take = [&](Deadline other, CallEnd end) {
    const Deadline sooner = limit.deadline.sooner(other);
    if (sooner.at() != limit.deadline.at()) limit = {sooner, end};
  };
  take(deadline, CallEnd::kDeadline);
  if (!exchange_.is_read_as_stream()) {
    take(deadline_at(began_ + times_.answer), CallEnd::kNoFirstToken);
    return limit;
  }
  if (exchange_.attempt_tokens() == 0) {
    take(deadline_at(began_ + first_token_limit_), CallEnd::kNoFirstToken);
    return limit;
  }
  take(deadline_at(last_token_ + held_up_ + times_.stream), CallEnd::kSilent);
  if (times_.may_pause) return limit;
  const TimePoint moved =
      std::max(worker_->pace.last_token().value_or(began_), last_token_ + held_up_);
  const base::Duration gap = worker_->pace.mean_gap().value_or(base::Duration::zero());
  take(deadline_at(moved + times_.stall_limit(gap)), CallEnd::kHung);
  return limit;
}

bool UpstreamCall::others_moved() const {
  return worker_->pace.last_token().value_or(began_) > last_token_;
}

// Reads the head of the answer, or some bytes of its body.
awaitable<void> UpstreamCall::read(Deadline deadline) {
  if (exchange_.state() == Exchange::State::kWaiting) {
    http::ResponseHead head = co_await connection_->read_head(deadline);
    exchange_.on_head(std::move(head));
    co_return;
  }
  std::string long_bytes;
  const http::Connection::Take pass_on = [&](std::string_view bytes) {
    exchange_.is_long(bytes) ? void(long_bytes = bytes) : exchange_.on_body(bytes);
  };
  const std::size_t count = co_await connection_->read_some(pass_on, deadline);
  if (!long_bytes.empty()) {
    const std::function<void()> read_long = [&] { exchange_.on_body(long_bytes); };
    co_await on_thread(read_long);
  }
  if (count > 0) co_return;
  if (exchange_.has_long_end()) {
    const std::function<void()> end = [this] { exchange_.on_end(); };
    co_await on_thread(end);
  } else {
    exchange_.on_end();
  }
}

awaitable<void> UpstreamCall::on_thread(std::function<void()> step) {
  exchange_.set_on_thread(true);
  const base::Finally take_back([this] { exchange_.set_on_thread(false); });
  co_await loop::run_blocking<void>(std::move(step));
}

awaitable<CallEnd> UpstreamCall::read_answer(Deadline deadline, const Deliver& deliver,
                                             const OnTokens& on_tokens) {
  std::optional<Deadline> last_look;
  while (exchange_.state() != Exchange::State::kDone) {
    // Another stream of the worker may have moved meanwhile.
    const Limit limit = next_limit(deadline);
    if (!limit.deadline.expired()) {
      last_look.reset();
    } else if (!last_look) {
      last_look = Deadline::after(kLastLook);
    }
    const std::uint64_t tokens_before = exchange_.attempt_tokens();
    try {
      if (last_look && last_look->expired()) {
        reason_ = reason_of(limit.end);
        connection_->close();
        // An answer that has its finish_reason is complete.
        exchange_.on_broken(reason_);
        if (exchange_.state() != Exchange::State::kDone) co_return limit.end;
      } else {
        co_await read(last_look.value_or(limit.deadline));
      }
    } catch (const base::Error& error) {
      if (is_cut_) co_return CallEnd::kCut;
      if (error.status() == ExitStatus::kTryAgain) continue;
      reason_ = error.what();
      exchange_.on_broken(reason_);
    }
    if (exchange_.attempt_tokens() > tokens_before) {
      const TimePoint now = Clock::now();
      const base::Duration gap = now - last_token_ - held_up_;
      const bool is_first = tokens_before == 0;
      const bool is_measured = !is_first && !times_.may_pause;
      worker_->pace.on_token(now, is_measured ? std::optional(gap) : std::nullopt);
      on_tokens(gap, is_first);
      last_token_ = now;
      held_up_ = {};
    }
    if (exchange_.state() == Exchange::State::kFailed) {
      if (reason_.empty()) reason_ = exchange_.fault()->reason;
      connection_->close();
      co_return CallEnd::kFault;
    }
    if (!exchange_.has_head()) continue;
    const TimePoint begin = Clock::now();
    co_await deliver();
    held_up_ += Clock::now() - begin;
  }
  // Without it, a worker whose answers come in one piece would not seem to move.
  if (!exchange_.is_read_as_stream()) worker_->pace.on_token(Clock::now(), std::nullopt);
  if (exchange_.is_cut_short()) {
    connection_->close();
  } else {
    co_await connection_->finish(Deadline::after(kLastLook));
  }
  connection_.reset();
  co_return CallEnd::kDone;
}

}  // namespace fo::route
