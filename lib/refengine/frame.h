// The messages between the engine and its rank processes on their socket pair. Both ends are the
// same program, so they use the machine's own layout; lengths are limited nevertheless.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "refengine/model/generation.h"
#include "refengine/rank_options.h"

namespace fo::refengine {

enum class FrameKind : std::uint32_t {
  // From the engine, with the rank's answer.
  kSetup = 1,  // the first: RankOptions as JSON; kDone when weights and KV cache exist
  kStep,       // a StepRequest: kHidden, or from the last rank kToken
  kSleep,      // kDone
  kWake,       // one byte of WakeTags: kDone
  kReadKv,     // a KvRange: kKv
  kWriteKv,    // a KvRange and its floats: kDone
  // From the rank.
  kDone,
  kHidden,  // floats
  kToken,   // a StepResult
  kKv,      // floats
  kEvent,   // JSON; may be sent at any time, not as an answer
  kFailed,  // the last frame: exit status (4 bytes) and message
};

struct FrameHeader {
  std::uint32_t kind;
  std::uint32_t size;
};

struct StepRequest {
  std::uint64_t position = 0;
  std::uint32_t count = 0;
  bool wants_token = false;
  Sampling sampling;
  Constraints constraints = {};
  std::vector<TokenId> targets = {};
  std::uint32_t target_logprobs = 0;
  /// Tokens for the first rank, hidden states for the others.
  std::string_view input = {};
};

/// Positions of the KV cache.
struct KvRange {
  std::uint64_t position;
  std::uint64_t count;
};

/// The resources, released by a sleep, that a wake restores.
struct WakeTags {
  bool weights = false;
  bool kv_cache = false;
  [[nodiscard]] bool any() const { return weights || kv_cache; }
};

struct Frame {
  FrameKind kind = FrameKind::kDone;
  std::string payload;
};

/// The maximum size of a frame; the hidden states of a full chunk of the widest model fit into it.
inline constexpr std::uint32_t kMaxFrameBytes = 16u << 20;

/// A whole frame as bytes.
std::string encode_frame(FrameKind kind, std::string_view payload);
/// Throws Error(kProtocol) for an unknown kind or a size over the limit.
FrameHeader check_header(const FrameHeader& header);

std::string encode_setup(const RankOptions& options);
/// Throws Error(kProtocol).
RankOptions decode_setup(std::string_view payload);

std::string encode_tags(WakeTags tags);
WakeTags decode_tags(std::string_view payload);

std::string encode_step(const StepRequest& step);
/// `input` stays in the payload. Throws Error(kProtocol).
StepRequest decode_step(std::string_view payload);

std::string encode_range(const KvRange& range, std::string_view bytes);
/// Removes the range from the front of the payload. Throws Error(kProtocol).
KvRange take_range(std::string_view& payload);

std::string encode_result(const StepResult& result);
/// Throws Error(kProtocol).
StepResult decode_result(std::string_view payload);

std::string encode_failure(base::ExitStatus status, std::string_view message);
/// The error to throw in the receiver.
base::Error decode_failure(std::string_view payload);

/// Converts numbers to bytes and back. `as_values` throws Error(kProtocol) for a wrong size.
template <typename Value>
std::string_view as_text(std::span<const Value> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <typename Value>
std::vector<Value> as_values(std::string_view bytes) {
  if (bytes.size() % sizeof(Value) != 0) {
    throw base::Error(base::ExitStatus::kProtocol, "read a frame: malformed numbers");
  }
  std::vector<Value> values(bytes.size() / sizeof(Value));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Blocking calls for the rank. read_frame returns nullopt if the engine closed its end.
std::optional<Frame> read_frame(int fd);
void write_frame(int fd, FrameKind kind, std::string_view payload);

}  // namespace fo::refengine
