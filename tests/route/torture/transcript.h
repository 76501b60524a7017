// The answer that a client got, in a form in which two answers are equal if they differ only in
// their ids, their times, and where a stream is cut into events. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fo::torture {

struct Transcript {
  /// Text, tokens, log-probabilities, usage, and how often there is a role, an end and "[DONE]".
  nlohmann::json content;
  /// What no answer may have, such as an event after its end.
  std::vector<std::string> errors;
};

/// The events of a stream with one choice.
Transcript read_stream(std::string_view body);
/// An answer in one piece.
Transcript read_whole(std::string_view body);

/// Where the two differ, member by member, with the errors of `actual`; empty if they are equal.
std::string difference(const Transcript& expected, const Transcript& actual);

}  // namespace fo::torture
