// One request of a client and its answer, across all attempts on workers: what is held back, what
// the client gets, and what has become of the present attempt. Pure: the network is at its edges.
//
//                  head, body, end, failure of an attempt
//                                  |
//                             [ exchange ] -- kDone   -> the answer is complete
//                                  |    \____ kFailed -> another attempt, or the end
//                          bytes for the client
//
// Until the first byte of an answer is delivered, another attempt replaces it as if it had never
// been; afterwards it continues the answer, if that is possible (resume/resumption.h). An answer in
// one piece is held until it is complete. A stream of /v1/chat/completions or /v1/completions is
// held until it brings content, or ends without any: the chunk with the role alone is not
// delivered. Once each choice of it has a finish_reason, it is complete, whatever follows: an
// error, an invalid event, or the end of the connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "http/message.h"
#include "http/sse.h"
#include "route/answer/other_stream.h"
#include "route/request/client_request.h"
#include "route/resume/resumption.h"
#include "route/resume/whole_answer.h"

namespace fo::route {

inline constexpr std::string_view kKvSnapshotUsed = "used";

/// A fault in a worker's answer itself, and not in the connection.
struct AnswerFault {
  enum class Kind {
    kStatus,      // an HTTP status of an error
    kErrorFrame,  // an error in a stream, in place of an answer
    kTruncated,   // the answer ended before its end
    kInvalid,     // the answer is not what was requested, such as an event that is not JSON
    kTooLong,     // longer than Limits::whole; the next attempt is kAsGiven
    kAborted,     // the engine ended the answer with "abort" or "error"
  };
  Kind kind = Kind::kStatus;
  /// The HTTP status of kStatus.
  int status = 0;
  /// The status that the error itself names, of kStatus and kErrorFrame; 0 if it names none.
  int error_code = 0;
  std::string reason = {};
};

class Exchange {
 public:
  /// Limits of what is held in memory.
  struct Limits {
    /// An answer in one piece that is longer is delivered as it arrives.
    base::ByteCount held = 4 * base::kMiB;
    /// Limits of an event up to the first one with content, and of a later event. Events without
    /// content are held up to the sum of both.
    base::ByteCount first_event = 16 * base::kMiB;
    base::ByteCount event = base::kMiB;
    /// A longer answer in one piece is not read as a stream, and cannot continue.
    base::ByteCount whole = 64 * base::kMiB;
  };

  /// The state of the present attempt.
  enum class State {
    kWaiting,  // for the head of an answer
    kReading,
    kDone,    // the answer is complete; the rest of the attempt's bytes does not matter
    kFailed,  // see fault()
  };

  /// The request that a worker gets.
  enum class RequestForm {
    kAsGiven,      // the client's request
    kResumable,    // the same, as resumable_body() has it
    kContinuation  // the rest of the answer
  };

  /// `request` must outlive this object.
  Exchange(const ClientRequest& request, const Limits& limits);

  /// Sets the request of the attempts from now on; kContinuation only if resumption() can continue.
  void set_form(RequestForm form) { form_ = form; }
  [[nodiscard]] RequestForm form() const { return form_; }
  /// Forgets what was held. Unless it is a continuation, only if nothing was delivered.
  void begin_attempt();
  void on_head(http::ResponseHead head);
  void on_body(std::string_view bytes);
  /// The body is complete, as HTTP frames it.
  void on_end();
  /// Whether on_body(bytes), or on_end(), takes so long that other streams would wait: it completes
  /// a long event or answer. The caller may then call it on a thread, between set_on_thread(true)
  /// and set_on_thread(false).
  [[nodiscard]] bool is_long(std::string_view bytes) const;
  [[nodiscard]] bool has_long_end() const;
  void set_on_thread(bool is_on_thread) { is_on_thread_ = is_on_thread; }
  /// True while a thread uses the exchange: it must not be used otherwise.
  [[nodiscard]] bool is_on_thread() const { return is_on_thread_; }
  /// The connection ended early, or its bytes were not HTTP.
  void on_broken(const std::string& reason);

  /// Whether the client expects server-sent events, and whether the worker is asked for them.
  [[nodiscard]] bool is_stream() const { return wanted_mode_ != Mode::kWhole; }
  [[nodiscard]] bool is_read_as_stream() const {
    return is_stream() || form_ != RequestForm::kAsGiven;
  }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] const std::optional<AnswerFault>& fault() const { return fault_; }

  /// has_head(): the client's answer can be delivered. The caller then sends head(), once, and each
  /// result of take_output(), which counts as delivered from then on. After a fault, take_output()
  /// returns what arrived before the fault, but nothing if nothing was delivered before.
  [[nodiscard]] bool has_head() const { return is_delivering_; }
  [[nodiscard]] const http::ResponseHead& head() const { return head_; }
  std::string take_output();
  /// The worker's report on the KV cache that the request names: kKvSnapshotUsed, or the reason why
  /// it was not used. Empty if the worker has sent none.
  [[nodiscard]] const std::string& kv_snapshot() const { return kv_snapshot_; }

  /// Whether a failed answer has a part that need not be produced again: it was delivered, or can
  /// be continued.
  [[nodiscard]] bool has_part() const;
  /// Whether a part of the answer has been taken for the client.
  [[nodiscard]] bool is_delivered() const { return is_delivered_; }
  /// The tokens of the answer that were taken. Where the engine does not name tokens, its events
  /// with content; once the answer is complete, the number in its usage, if that is more.
  [[nodiscard]] std::uint64_t delivered_tokens() const { return delivered_tokens_; }
  /// The delivered tokens, and those that are still held.
  [[nodiscard]] std::uint64_t tokens() const { return delivered_tokens_ + held_tokens_; }
  /// The tokens that this attempt has brought; of a stream in another format, the events.
  [[nodiscard]] std::uint64_t attempt_tokens() const { return attempt_tokens_; }
  /// The number of tokens of the prompt; nullopt until the engine names them or their number.
  [[nodiscard]] std::optional<std::uint64_t> prompt_tokens() const;
  /// The id of a streamed answer of /v1/responses; empty as long as it is not known.
  [[nodiscard]] std::string response_id() const { return other_ ? other_->response_id() : ""; }

  /// Delivers a failed answer as the worker gave it: with its status and body, because another
  /// worker would answer the same. Only if nothing was delivered, and the fault is kStatus or
  /// kErrorFrame. `should_retry` is that of ApiError.
  [[nodiscard]] http::Response failed_answer(bool should_retry) const;
  /// Whether the answer is a stream of chunks, which can end with the event of an error.
  [[nodiscard]] bool is_chunk_stream() const {
    return mode_ == Mode::kChunks || form_ == RequestForm::kContinuation;
  }

  /// Whether an attempt of kResumable may continue on another worker. It may unless the request's
  /// fields forbid it, or the answer was too long.
  [[nodiscard]] bool may_continue() const { return resumption_ && !is_too_long_; }
  /// To be called only if the request may continue.
  [[nodiscard]] Resumption& resumption() { return *resumption_; }
  [[nodiscard]] const Resumption& resumption() const { return *resumption_; }
  [[nodiscard]] bool continues_as_text() const {
    return resumption_ && resumption_->continues_as_text();
  }
  /// Why the failed answer cannot continue; empty if it can.
  [[nodiscard]] std::string resume_refusal() const;
  /// Completes a failed answer that needs no worker any more. False if it needs one.
  bool finish_here();
  /// True if the answer is complete although the worker still sends.
  [[nodiscard]] bool is_cut_short() const { return is_cut_short_; }

 private:
  enum class Mode {
    kWhole,   // held until it is complete
    kOther,   // a stream in another format, held until its first byte
    kChunks,  // a stream of OpenAI's chunks
  };

  void read_events(std::string_view bytes);
  void on_event(const http::SseEvent& event);
  void finish(std::uint64_t choice);
  [[nodiscard]] bool is_finished() const { return finished_.size() >= choices_; }
  void complete();
  void fail(AnswerFault fault);

  void set_usage(const std::optional<Usage>& usage);
  void on_resumable(std::string_view data, const StreamChunk& chunk);
  void add_events(const std::string& events);
  void check_held(std::size_t bytes);

  const ClientRequest& request_;
  const std::uint64_t choices_;
  const Mode wanted_mode_;
  const Limits limits_;
  std::optional<Resumption> resumption_;
  /// An answer in one piece of which the worker sends the events.
  std::optional<WholeAnswer> whole_;
  bool is_too_long_ = false;
  RequestForm form_ = RequestForm::kAsGiven;
  bool is_delivered_ = false;
  std::uint64_t delivered_tokens_ = 0;
  std::optional<std::uint64_t> prompt_tokens_;

  // The present attempt:
  State state_ = State::kWaiting;
  Mode mode_ = Mode::kWhole;
  std::optional<AnswerFault> fault_;
  http::ResponseHead head_;
  std::string kv_snapshot_;
  http::SseReader events_;
  std::optional<OtherStream> other_;
  /// The number of tokens of the answer in the engine's last usage; 0 without one.
  std::uint64_t named_tokens_ = 0;
  bool is_delivering_ = false;
  bool is_on_thread_ = false;
  /// Bytes received for the client that were not taken yet.
  std::string held_;
  /// The body of an answer with the status of an error.
  std::string error_body_;
  bool is_cut_short_ = false;
  std::uint64_t held_tokens_ = 0;
  std::uint64_t attempt_tokens_ = 0;
  std::vector<std::uint64_t> finished_;
};

}  // namespace fo::route
