// The call of a worker for one attempt of a request: sends it, reads the answer as long as the
// client reads it, and notices when the worker stops.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "http/pool.h"
#include "route/answer/exchange.h"
#include "route/worker/worker.h"

namespace fo::route {

struct CallTimes {
  base::Duration connect = std::chrono::seconds(2);
  /// Time limit of the first token of a stream with a short prompt; a longer one has a second more
  /// for each `prefill_rate` tokens.
  base::Duration first_token = std::chrono::seconds(60);
  std::uint64_t prefill_rate = 1000;
  /// Time limit between two tokens of a stream while other streams of its worker continue.
  base::Duration stream = std::chrono::seconds(120);
  /// Time limit of an answer in one piece.
  base::Duration answer = std::chrono::minutes(10);
  /// A worker hangs when none of its streams brings a token for this time, or for so many times its
  /// mean gap if that is longer.
  base::Duration stall = std::chrono::seconds(5);
  std::uint64_t stall_gaps = 20;
  /// The stream may pause while its worker generates tokens, as ResumeFacts::may_pause says. Then
  /// only `stream` limits a pause, and the worker's mean gap does not include the stream's gaps.
  bool may_pause = false;

  [[nodiscard]] base::Duration first_token_limit(std::uint64_t prompt_tokens) const;
  [[nodiscard]] base::Duration stall_limit(base::Duration mean_gap) const;
};

/// Pause between two attempts while no descriptor or memory is left for a connection.
inline constexpr base::Duration kExhaustedPause = std::chrono::milliseconds(50);

/// How a call ended. Exchange::fault() may say more.
enum class CallEnd {
  kDone,          // the answer is complete
  kFault,         // see Exchange::fault()
  kRefused,       // no connection: nothing was sent
  kExhausted,     // the same, because this process had no descriptor or memory for one
  kNotTrusted,    // no TLS: the worker's certificate was rejected, or ours, or a file is unusable
  kHung,          // no stream of the worker moves
  kSilent,        // only this stream does not move
  kNoFirstToken,  // the first token is late
  kDeadline,      // the request's own deadline has passed
  kCut,           // ended by UpstreamCall::cut()
};

class UpstreamCall {
 public:
  /// Sends what the exchange has for the client. It may throw, which ends the call.
  using Deliver = std::function<boost::asio::awaitable<void>()>;
  /// Called for each piece of an answer that brings tokens. `gap` is the time since the last such
  /// piece, or since the call began.
  using OnTokens = std::function<void(base::Duration gap, bool is_first)>;

  UpstreamCall(http::Pool& pool, WorkerPtr worker, Exchange& exchange, const CallTimes& times,
               std::uint64_t prompt_tokens);
  UpstreamCall(const UpstreamCall&) = delete;
  UpstreamCall& operator=(const UpstreamCall&) = delete;

  /// Runs to its end. Call once. Throws what `deliver` throws, and
  /// boost::system::system_error when it is cancelled; in each case the connection is closed.
  boost::asio::awaitable<CallEnd> run(http::RequestHead head, std::string_view body,
                                      base::Deadline deadline, Deliver deliver, OnTokens on_tokens);

  /// Closes the connection, so that run() returns kCut.
  void cut();

  /// The first reason in words; empty if there is none.
  [[nodiscard]] const std::string& reason() const { return reason_; }
  /// True if an earlier connection ended after the request was sent on it. Then the worker may have
  /// received the request even if run() returns kRefused.
  [[nodiscard]] bool was_sent() const { return was_sent_; }
  /// Whether another stream of the worker has brought a token since this one's last, or since the
  /// call began.
  [[nodiscard]] bool others_moved() const;

 private:
  boost::asio::awaitable<CallEnd> connect(bool is_fresh, base::Deadline deadline);
  boost::asio::awaitable<CallEnd> send(const http::RequestHead& head, std::string_view body,
                                       base::Deadline deadline);
  boost::asio::awaitable<void> read(base::Deadline deadline);
  boost::asio::awaitable<void> on_thread(std::function<void()> step);
  boost::asio::awaitable<CallEnd> read_answer(base::Deadline deadline, const Deliver& deliver,
                                              const OnTokens& on_tokens);
  // The deadline of the next read, and how the attempt ends if it passes.
  struct Limit {
    base::Deadline deadline;
    CallEnd end;
  };
  [[nodiscard]] Limit next_limit(base::Deadline deadline) const;

  http::Pool& pool_;
  const WorkerPtr worker_;
  Exchange& exchange_;
  const CallTimes times_;
  const base::Duration first_token_limit_;
  http::Pool::Lease connection_;
  bool is_cut_ = false;
  bool was_sent_ = false;
  std::string reason_;
  TimePoint began_;
  TimePoint last_token_;
  // How long, since the last token, the call waited for the client and did not read from the
  // worker.
  base::Duration held_up_{};
};

}  // namespace fo::route
