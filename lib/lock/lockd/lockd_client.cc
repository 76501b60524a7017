#include "lock/lockd/lockd_client.h"

#include <deque>
#include <optional>
#include <utility>

#include "base/error.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/lockd/lockd_status.h"
#include "loop/backoff.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "net/line_stream.h"
#include "os/log.h"

namespace fo::lock {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::BootClock;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using Kind = net::LineStream::Input::Kind;

// The timeout to connect to a server and receive its first answer.
constexpr base::Duration kAnswerTime = std::chrono::seconds(5);
// The maximum number of unanswered heartbeats that count when they are answered.
constexpr std::size_t kMaxAsked = 16;

class LockdClient final : public LeaseClient {
 public:
  LockdClient(const LockUri& uri, std::string id)
      : server_(uri.network.servers.front()),
        tls_(uri.network.tls),
        what_("query lock server " + base::quoted(uri.path)),
        id_(std::move(id)) {}

  awaitable<std::variant<Renewal, LeaseEnded>> renew(Deadline deadline) override {
    std::string error_text;
    if (stream_) {
      // A late answer may still arrive, but this connection may be broken.
      const bool is_late = std::exchange(is_late_, true);
      const Deadline until = is_late ? half_of(deadline) : deadline;
      try {
        co_await send_heartbeat(until);
        const std::optional<Verdict> verdict = co_await read_verdict(until, false);
        if (verdict) co_return *verdict;
        error_text = what_ + ": no answer in time";
      } catch (const Error& error) {
        error_text = error.what();
        drop();
      }
      if (stream_ && !is_late) throw Error(ExitStatus::kTryAgain, error_text);
      drop();
    }
    std::optional<Verdict> verdict;
    try {
      co_await ask(deadline);
      verdict = co_await read_verdict(deadline, true);
      if (!verdict) throw Error(ExitStatus::kTryAgain, what_ + ": no answer in time");
    } catch (const Error& error) {
      // Until the claim is confirmed on a connection, answers to its heartbeats prove nothing.
      drop();
      note_error(error.what());
      throw;
    }
    note_error({});
    co_return *verdict;
  }

  [[nodiscard]] bool can_be_freed_early() const override { return false; }

 private:
  awaitable<Step> advance() override {
    drop();
    const Lease lease = co_await wait_for_grant();
    note_error({});
    co_return lease;
  }

  void begin() override {
    generation_.reset();
    answered_.reset();
  }

  awaitable<bool> try_release(Deadline deadline) override {
    const std::optional<std::uint64_t> generation = generation_;
    if (!stream_ && !generation) co_return true;
    bool informed = false;
    if (stream_) {
      try {
        co_await request_release(deadline);
        informed = true;
      } catch (const Error& error) {
        if (error.status() == ExitStatus::kTryAgain) throw;
      }
    }
    // A waiter whose connection was lost was not granted anything.
    if (!informed && generation) {
      drop();
      co_await ask(deadline);
      co_await request_release(deadline);
    }
    generation_.reset();
    drop();
    co_return true;
  }

  [[nodiscard]] bool is_reached() const override { return reached_; }

  using Verdict = std::variant<Renewal, LeaseEnded>;

  static Deadline half_of(const Deadline& deadline) {
    return deadline.is_never() ? deadline : Deadline::after(*deadline.remaining() / 2);
  }

  // Errors that seem transient may stay, such as an expired certificate or an unknown name.
  void note_error(const std::string& error_text) {
    if (!error_text.empty() && error_text != error_text_)
      os::log(os::LogLevel::kWarning, "{}", error_text);
    error_text_ = error_text;
  }

  void drop() {
    stream_.reset();
    asked_.clear();
    is_late_ = false;
  }

  // Opens a new connection and requests the lock, or claims it if there is a generation.
  awaitable<void> ask(Deadline deadline) {
    std::unique_ptr<net::LineStream> stream;
    try {
      stream = co_await net::LineStream::connect(server_, tls_, kMaxAnswerBytes, deadline);
    } catch (const Error& error) {
      const ExitStatus status =
          reached_ && !loop::is_transient(error) ? ExitStatus::kUnavailable : error.status();
      throw Error(status, what_ + ": " + error.what());
    }
    const AcquireRequest request{id_, generation_, generation_ ? token_ : std::string()};
    drop();
    answered_.reset();
    std::string lines = encode_request(request);
    lines += heartbeat();
    co_await stream->write(std::move(lines), deadline);
    stream_ = std::move(stream);
  }

  std::string heartbeat() {
    if (asked_.size() == kMaxAsked) asked_.pop_front();
    asked_.emplace_back(++sequence_, BootClock::now());
    return encode_request(HeartbeatRequest{sequence_});
  }

  awaitable<void> send_heartbeat(Deadline deadline) {
    std::string line = heartbeat();
    co_await stream_->write(std::move(line), deadline);
  }

  // The next answer; nullopt at the deadline. Throws kUnavailable at the end of the connection.
  awaitable<std::optional<LockdAnswer>> read_answer(Deadline deadline) {
    net::LineStream::Input input;
    try {
      input = co_await stream_->read_line(deadline);
    } catch (const Error& error) {
      if (!reached_ || loop::is_transient(error)) throw;
      throw Error(ExitStatus::kUnavailable, error.what());
    }
    if (input.kind == Kind::kNothingYet) co_return std::nullopt;
    if (input.kind == Kind::kEnd) {
      throw Error(ExitStatus::kUnavailable, what_ + ": it closed the connection");
    }
    const LockdAnswer answer = decode_answer(input.line);
    reached_ = true;
    if (const auto* heartbeat = std::get_if<HeartbeatAnswer>(&answer)) note_answer(*heartbeat);
    co_return answer;
  }

  void note_answer(const HeartbeatAnswer& answer) {
    while (!asked_.empty() && asked_.front().first < answer.sequence) asked_.pop_front();
    if (asked_.empty() || asked_.front().first != answer.sequence) {
      throw Error(ExitStatus::kProtocol, what_ + ": an answer to a heartbeat that was not sent");
    }
    answered_ = Renewal{asked_.front().second, answer.expiry};
    asked_.pop_front();
    is_late_ = false;
  }

  // Whether an existing grant continues; nullopt at the deadline. `is_claim`: the grant was claimed
  // on this connection and must be confirmed.
  awaitable<std::optional<Verdict>> read_verdict(Deadline deadline, bool is_claim) {
    bool is_confirmed = !is_claim;
    std::optional<Renewal> renewal;
    for (;;) {
      const std::optional<LockdAnswer> answer = co_await read_answer(deadline);
      if (!answer) co_return std::nullopt;
      if (const auto* refused = std::get_if<RefusedAnswer>(&*answer)) {
        const bool over = refused->status == ExitStatus::kTryAgain;
        co_return LeaseEnded{over ? ExitStatus::kTryAgain : ExitStatus::kProtocol, refused->reason};
      }
      if (const auto* granted = std::get_if<GrantedAnswer>(&*answer)) {
        if (granted->generation != generation_) {
          co_return LeaseEnded{ExitStatus::kTryAgain, "it was granted again, as generation " +
                                                          std::to_string(granted->generation)};
        }
        is_confirmed = true;
      }
      if (std::holds_alternative<HeartbeatAnswer>(*answer)) renewal = answered_;
      if (is_confirmed && renewal) co_return *renewal;
    }
  }

  awaitable<Lease> wait_for_grant() {
    const Deadline first = Deadline::after(kAnswerTime);
    co_await ask(step_deadline(kAnswerTime));
    std::optional<GrantedAnswer> granted;
    while (!granted || !answered_) {
      // The expiry is unknown before the first answer.
      const Deadline until = answered_ ? Deadline::after(answered_->ttl / 3) : first;
      const std::optional<LockdAnswer> answer = co_await read_answer(until);
      if (answer) {
        granted = take_grant(*answer, std::move(granted));
        if (granted) {
          generation_ = granted->generation;
          token_ = granted->token;
        }
      }
      const bool is_dead =
          answered_ ? BootClock::now() >= answered_->sent + answered_->ttl : first.expired();
      if (is_dead) {
        // The lease has expired by our own clock.
        if (answered_) generation_.reset();
        throw Error(ExitStatus::kUnavailable, what_ + ": no answer in time");
      }
      const bool is_due =
          answered_ && asked_.empty() && BootClock::now() >= answered_->sent + answered_->ttl / 3;
      if (!answer || is_due) co_await send_heartbeat(until);
    }
    Lease lease{granted->generation, granted->granted_at, *answered_};
    // The last answer of a long wait may be outdated.
    if (BootClock::now() >= answered_->sent + answered_->ttl / 3) {
      const Deadline until = Deadline::after(answered_->ttl / 3);
      const Verdict verdict = co_await renew(until);
      if (const auto* ended = std::get_if<LeaseEnded>(&verdict)) {
        generation_.reset();
        throw Error(ended->status, what_ + ": " + ended->reason);
      }
      lease.renewed = std::get<Renewal>(verdict);
    }
    co_return lease;
  }

  // The grant in the answer; `before` if the answer is of another kind. Throws a refusal.
  std::optional<GrantedAnswer> take_grant(const LockdAnswer& answer,
                                          std::optional<GrantedAnswer> before) {
    if (const auto* refused = std::get_if<RefusedAnswer>(&answer)) {
      // The claimed grant has ended, so the next attempt queues.
      if (refused->status == ExitStatus::kTryAgain) generation_.reset();
      throw Error(refused->status, what_ + ": " + refused->reason);
    }
    const auto* granted = std::get_if<GrantedAnswer>(&answer);
    return granted != nullptr ? std::optional(*granted) : std::move(before);
  }

  // Waits until the server closes the connection, which confirms the release.
  awaitable<void> request_release(Deadline deadline) {
    std::string line = encode_request(ReleaseRequest{});
    co_await stream_->write(std::move(line), deadline);
    for (;;) {
      const net::LineStream::Input input = co_await stream_->read_line(deadline);
      if (input.kind == Kind::kEnd) co_return;
      if (input.kind == Kind::kNothingYet) {
        throw Error(ExitStatus::kTryAgain, what_ + ": no answer in time");
      }
    }
  }

  const std::string server_;
  const net::TlsFiles tls_;
  const std::string what_;
  const std::string id_;
  std::unique_ptr<net::LineStream> stream_;
  /// The server has answered at least once.
  bool reached_ = false;
  /// The generation of the current grant.
  std::optional<std::uint64_t> generation_;
  std::string token_;
  std::uint64_t sequence_ = 0;
  /// Unanswered requests of this connection and their times.
  std::deque<std::pair<std::uint64_t, BootClock::time_point>> asked_;
  std::optional<Renewal> answered_;
  /// The last heartbeat was not answered in time.
  bool is_late_ = false;
  /// The reason of the last failed attempt, as it was logged.
  std::string error_text_;
};

awaitable<StatusAnswer> ask_status(LockUri uri, std::string what, Deadline deadline) {
  const auto stream = co_await net::LineStream::connect(uri.network.servers.front(),
                                                        uri.network.tls, kMaxAnswerBytes, deadline);
  std::string line = encode_request(StatusRequest{});
  co_await stream->write(std::move(line), deadline);
  const net::LineStream::Input input = co_await stream->read_line(deadline);
  if (input.kind == Kind::kNothingYet) {
    throw Error(ExitStatus::kTryAgain, what + ": no answer in time");
  }
  if (input.kind == Kind::kEnd) {
    throw Error(ExitStatus::kProtocol, what + ": it closed the connection");
  }
  co_return status_in(input.line, what);
}

}  // namespace

std::unique_ptr<LeaseClient> make_lockd_client(const LockUri& uri, const std::string& id) {
  return std::make_unique<LockdClient>(uri, id);
}

LockStatus query_lockd_over_tcp(const LockUri& uri, const Deadline& deadline) {
  const std::string what = "query lock server " + base::quoted(uri.path);
  return status_of(uri.path, loop::run_to_end(ask_status(uri, what, deadline)), false);
}

}  // namespace fo::lock
