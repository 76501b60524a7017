// The state that is needed to continue an answer with one choice on another worker, and the
// client's part of each event: the tokens and text so far, the stop strings, which the router
// matches in place of the engine, and the usage. Pure. An Exchange (answer/exchange.h) has one for
// a request that may continue. attempts.cc and resume/text/seam.h send the requests to workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/card/card.h"
#include "route/answer/stream_chunk.h"
#include "route/request/client_request.h"
#include "route/resume/client_events.h"
#include "route/resume/text/stop_matcher.h"
#include "route/resume/text/text_continuation.h"
#include "route/resume/transcript.h"

namespace fo::route {

class Resumption {
 public:
  /// `request`, a chat or a completion, must outlive this object.
  explicit Resumption(const ClientRequest& request);

  /// Sets the known facts of the model. Without a card, its context_length alone may be known, or
  /// nothing.
  void set_card(std::shared_ptr<const fleet::Card> card) { card_ = std::move(card); }

  /// To be called before an answer is produced from its beginning.
  void begin();
  /// To be called before events that continue the answer at its safe point.
  void begin_continuation();

  struct Output {
    /// Events for the client, and the number of their tokens.
    std::string events = {};
    std::uint64_t tokens = 0;
    /// True if a stop string ends the answer, whatever else the worker sends.
    bool is_complete = false;
    /// Why the event does not continue the answer; empty if it does.
    std::string mismatch = {};
  };
  /// Processes the data of an event other than "[DONE]", which is neither an error nor an abort.
  Output on_event(std::string_view data, const StreamChunk& chunk);
  /// The size of the events that are held, because their text is not certain yet.
  [[nodiscard]] std::size_t held_bytes() const { return held_.size(); }
  /// The usage so far; nullopt if neither the token ids nor the engine's counts are known.
  [[nodiscard]] std::optional<Usage> usage() const;
  /// Returns the event with the usage, which precedes "[DONE]"; empty if the client does not want
  /// it, it is not known, or the engine's own was forwarded.
  std::string closing();
  /// The rest of an answer that needs no worker any more, because its last token ends it, or its
  /// limit is reached; nullopt if it needs one.
  std::optional<Output> finish_here();

  /// Why the answer cannot continue at this point; empty if it can.
  [[nodiscard]] std::string refusal() const;
  /// The engine does not report token ids.
  [[nodiscard]] bool lacks_token_ids() const { return lacks_token_ids_; }
  /// The answer continues after its text, see resume/text/text_continuation.h: without the seam
  /// that check_seam() compares, and in the request's own API.
  [[nodiscard]] bool continues_as_text() const {
    return lacks_token_ids_ && facts_.text_refusal.empty() && transcript_.text().is_whole();
  }
  /// True if a part of the answer need not be produced again.
  [[nodiscard]] bool has_part() const {
    return lacks_token_ids_ ? transcript_.text().size() > 0 : transcript_.safe_point() > 0;
  }

  // --- Of a continuation.

  [[nodiscard]] const Transcript& transcript() const { return transcript_; }
  /// The model's special ids and stop ids, which an engine leaves out of an answer's text; empty if
  /// the client wants them in it, or they are not known.
  [[nodiscard]] std::set<TokenId> hidden_ids() const;
  /// False if others may be hidden, because the ids of the model are not known.
  [[nodiscard]] bool knows_hidden_ids() const {
    return !facts_.skip_special_tokens || (card_ && !card_->special_ids.empty());
  }
  /// Returns the number of tokens before the safe point that may be produced again: with ids or
  /// log-probabilities, the client would get them twice.
  [[nodiscard]] std::size_t max_rewind() const;
  void rewind(std::size_t end, std::size_t repeated) { transcript_.rewind(end, repeated); }
  /// The body of POST /v1/completions, or of the request's own API. `snapshot` is the id of a KV
  /// cache that the worker has pulled; empty: none.
  [[nodiscard]] std::string body(const std::string& snapshot = {}) const;
  /// The same for one token, which the router drops. After it, the worker's cache has all tokens
  /// before that one.
  [[nodiscard]] std::string warming_body() const;

 private:
  /// The client's own limit of the answer's tokens, or that of the API; nullopt if there is none.
  [[nodiscard]] std::optional<std::uint64_t> client_limit() const;
  /// The maximum of tokens in the answer, which the context limits, too; nullopt if it is not
  /// known.
  [[nodiscard]] std::optional<std::uint64_t> limit() const;
  /// The tokens of the answer so far.
  [[nodiscard]] std::uint64_t tokens() const {
    return lacks_token_ids_ ? text_.tokens() : transcript_.tokens();
  }
  [[nodiscard]] std::string text_refusal() const;
  [[nodiscard]] std::string text_body(bool is_streamed, std::optional<std::uint64_t> limit) const;
  [[nodiscard]] bool is_end_of_text(TokenId id) const;
  [[nodiscard]] bool ends_answer(TokenId id) const;
  [[nodiscard]] bool has_thought() const;
  [[nodiscard]] std::string rebased_logprobs(std::string logprobs) const;
  std::string check_prompt(const StreamChunk& chunk);
  Output on_part(std::string_view data, const StreamChunk& chunk);
  [[nodiscard]] ClientEvents::Part part_of(std::string_view data, const StreamChunk& chunk,
                                           std::string text) const;
  std::uint64_t take_tokens();

  const ClientRequest& request_;
  const ResumeFacts& facts_;
  std::shared_ptr<const fleet::Card> card_;
  ClientEvents events_;
  StopMatcher stops_;
  Transcript transcript_;
  TextContinuation text_;
  /// Events whose text is not certain yet.
  std::string held_;
  /// Tokens that the client has got.
  std::uint64_t delivered_ = 0;
  /// The certain text's characters, and how many of them precede the present continuation.
  std::uint64_t characters_ = 0;
  std::uint64_t offset_ = 0;
  bool lacks_token_ids_ = false;
  /// The client has got the engine's own usage.
  bool has_usage_ = false;
  bool has_reasoning_ = false;
  bool has_content_ = false;
  bool is_continuation_ = false;
  /// True once the worker's prompt is known to be the right one.
  bool is_checked_ = false;
};

/// The body with which a request that may continue goes to a worker: as a stream that names its
/// tokens and its usage, without the stop strings, which the router matches. A worker that is known
/// to report no token ids is asked for the usage in each event instead.
std::string resumable_body(const ClientRequest& request, bool lacks_token_ids = false);

}  // namespace fo::route
