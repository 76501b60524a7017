// One event of a streamed answer in OpenAI's format: the values that the router needs, and the
// places of the members that are cut out for a client that did not ask for them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/scanner.h"

namespace fo::route {

using TokenId = std::uint32_t;

/// An engine's counts of tokens. Other APIs name them "input_tokens" and "output_tokens".
struct Usage {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t completion_tokens = 0;
};

struct StreamChunk {
  /// It brings text, reasoning or a part of a call, and not only a role or a count.
  bool has_content = false;
  /// The number of tokens that it brings: those of "token_ids"; without these, 1 if it has content.
  std::uint64_t tokens = 0;
  struct Finish {
    std::uint64_t choice = 0;
    std::string reason;
  };
  std::vector<Finish> finishes;
  /// The engine reports an error in place of an answer.
  bool is_error = false;
  /// The HTTP status that it names; nullopt if it names none.
  std::optional<int> error_status;
  std::string error_message;

  // --- For an answer with one choice: what is needed to continue it on another worker.

  /// The number of choices in this event.
  std::size_t choices = 0;
  /// Its "content" or "text", as WTF-8 (json/scanner.h).
  std::string text;
  /// It brings reasoning, a refusal or a part of a call.
  bool has_other_content = false;
  /// nullopt if the engine sends none, or something other than a list of ids.
  std::optional<std::vector<TokenId>> token_ids;
  std::optional<std::vector<TokenId>> prompt_ids;
  std::optional<Usage> usage;

  /// A part of the event's text; empty if it has none.
  struct Place {
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] bool empty() const { return begin == end; }
  };
  /// The places of the values of "choices", and in its choice, of the text, of "logprobs" and of
  /// "stop_reason".
  Place choices_at;
  Place text_at;
  Place logprobs_at;
  Place stop_reason_at;
  /// Edits that remove the ids of the prompt and of the tokens, in order.
  std::vector<fo::json::Edit> id_cuts;
  /// Edits that remove "usage"; empty without it.
  std::vector<fo::json::Edit> usage_cuts;
};

/// Reads the data of an event other than "[DONE]". Throws base::Error(kBadData) if it is not a JSON
/// object, or nested beyond json::kMaxDepth. Values of other types than expected are ignored. Of
/// duplicate names the last one counts.
StreamChunk read_stream_chunk(std::string_view data);

/// Reads the counts that the next value, an object, has; the others stay as they are. A count is at
/// most 2^32: no model has more tokens, and sums of them cannot overflow.
void read_usage(fo::json::Scanner& scanner, Usage& usage);

}  // namespace fo::route
