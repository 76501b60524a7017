// Continues an answer whose tokens the engine does not name: another engine is asked for what
// follows its text. That is not exact: the text may have other tokens than those that the first
// engine generated. Pure.
//
// A chat's text becomes the last message, of the assistant, which "continue_final_message" has the
// engine continue; a completion's text is appended to the prompt. White space at the end of the
// text is left out, because many chat templates cut it; if the engine sends it again, the client
// does not get it twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "route/answer/stream_chunk.h"
#include "route/request/client_request.h"

namespace fo::route {

class TextContinuation {
 public:
  /// Counts the tokens of an event, from all engines.
  void count(const StreamChunk& chunk);
  /// Returns the tokens of the answer so far, as the engines count them if they report usage with
  /// each event; at least the number of events.
  [[nodiscard]] std::uint64_t tokens() const;
  /// Returns the usage of the whole answer; nullopt if no engine has reported any.
  [[nodiscard]] std::optional<Usage> usage() const;

  /// To be called before events that continue `text`, which is all of the answer so far.
  void begin(std::string_view text);
  /// The part of the next event's text that is new.
  std::string_view fresh(std::string_view text);

  /// Members of the body that depend on the rest of the answer; nullopt keeps the client's.
  struct Rest {
    std::optional<std::uint64_t> max_tokens = {};
    std::uint64_t min_tokens = 0;
    std::optional<std::int64_t> seed = {};
  };
  /// The body of a request for what follows `text`, in the API of `request`. `is_streamed`: with
  /// the usage in each event.
  static std::string body(const ClientRequest& request, std::string_view text, const Rest& rest,
                          bool is_streamed);

 private:
  /// Tokens of the engines before the present one.
  std::uint64_t before_ = 0;
  /// Tokens of the present engine: one for each event.
  std::uint64_t events_ = 0;
  std::optional<Usage> usage_;
  /// Tokens of the prompt, as the first engine counts them.
  std::optional<std::uint64_t> prompt_tokens_;
  /// White space that may come again.
  std::string left_out_;
};

}  // namespace fo::route
