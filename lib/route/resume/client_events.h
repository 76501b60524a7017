// The events of a client's stream: the engine's events, without the members that the client did not
// ask for, and events that the router makes in the form of the engine's first one. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "route/answer/stream_chunk.h"
#include "route/request/api_paths.h"
#include "route/resume/rules.h"

namespace fo::route {

class ClientEvents {
 public:
  /// `facts` must outlive this object.
  ClientEvents(Api api, const ResumeFacts& facts) : api_(api), facts_(facts) {}

  /// Keeps what all events have in common, such as "id" and "created", from the first event with a
  /// choice.
  void learn(std::string_view data, const StreamChunk& chunk);
  void forget() { before_.clear(); }
  [[nodiscard]] bool has_learned() const { return !before_.empty(); }

  /// An event of the engine, with `text`, unless it is nullopt, in place of its own.
  [[nodiscard]] std::string forwarded(std::string_view data, const StreamChunk& chunk,
                                      const std::optional<std::string>& text) const;

  /// A part of the answer. The last three are JSON.
  struct Part {
    std::string text;
    std::vector<TokenId> ids = {};
    std::string logprobs = "null";
    std::string finish = "null";
    std::string stop_reason = "null";
  };
  /// An event that the router makes; only after learn(). `usage` is that of the answer up to this
  /// part; nullopt if it is not known.
  [[nodiscard]] std::string made(const Part& part, const std::optional<Usage>& usage) const;
  /// The event with the usage alone; only after learn().
  [[nodiscard]] std::string made_usage(const Usage& usage) const;

 private:
  [[nodiscard]] std::string event(std::string_view choices, const std::string& usage) const;

  Api api_;
  const ResumeFacts& facts_;
  /// The first event's text before its choices and after them.
  std::string before_;
  std::string after_;
};

}  // namespace fo::route
