// One event of a streamed answer in OpenAI's format, as far as the router must know it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fo::route {

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
};

/// Reads the data of an event other than "[DONE]". Throws base::Error(kBadData) if it is not a JSON
/// object. Values of other types than expected are ignored; half a surrogate pair is U+FFFD.
StreamChunk read_stream_chunk(std::string_view data);

}  // namespace fo::route
