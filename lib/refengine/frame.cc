#include "refengine/frame.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "json/object.h"
#include "os/file/file.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

[[noreturn]] void fail_cut_short() {
  throw Error(ExitStatus::kProtocol, "read from the engine: truncated");
}

struct StepHeader {
  std::uint64_t position;
  std::uint32_t count;
  std::uint32_t wants_token;
  std::uint32_t target_logprobs;
  std::uint32_t targets;
  std::uint32_t biases;
  std::uint32_t allowed;
  Sampling sampling;
};

// Header of a TokenChoice; its top tokens follow.
struct ChoiceHeader {
  std::uint32_t is_token;
  std::uint32_t rank;
  std::uint32_t top;
  TokenLogprob chosen;
};

// Removes `count` values from the front of `payload`.
template <typename Value>
std::vector<Value> take(std::string_view& payload, std::size_t count) {
  const std::size_t size = count * sizeof(Value);
  if (payload.size() < size) throw Error(ExitStatus::kProtocol, "read a frame: truncated");
  std::vector<Value> values = as_values<Value>(payload.substr(0, size));
  payload.remove_prefix(size);
  return values;
}

void append_choice(std::string& payload, const TokenChoice& choice, bool is_token) {
  const ChoiceHeader header{is_token ? 1u : 0u, choice.rank,
                            static_cast<std::uint32_t>(choice.top.size()), choice.chosen};
  payload += as_text(std::span(&header, 1));
  payload += as_text(std::span(choice.top));
}

// False if the peer closed before the first byte.
bool read_exactly(int fd, char* to, std::size_t size) {
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = ::read(fd, to + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) base::throw_errno(errno, "read from the engine");
    if (got == 0 && at == 0) return false;
    if (got == 0) fail_cut_short();
    at += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

std::string encode_frame(FrameKind kind, std::string_view payload) {
  const FrameHeader header{static_cast<std::uint32_t>(kind),
                           static_cast<std::uint32_t>(payload.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += payload;
  return bytes;
}

FrameHeader check_header(const FrameHeader& header) {
  if (header.kind < static_cast<std::uint32_t>(FrameKind::kSetup) ||
      header.kind > static_cast<std::uint32_t>(FrameKind::kFailed) ||
      header.size > kMaxFrameBytes) {
    throw Error(ExitStatus::kProtocol, "read a frame: unknown kind or size");
  }
  return header;
}

std::string encode_setup(const RankOptions& options) {
  return fo::json::dump({{"rank", options.rank},
                         {"ranks", options.ranks},
                         {"config", format_model_config(options.config)},
                         {"driver", options.driver},
                         {"socket", options.socket},
                         {"device", options.device.value()},
                         {"server_uid", options.server_uid ? json(*options.server_uid) : json()},
                         {"kv_bytes", options.kv_bytes},
                         {"load_timeout", options.load_timeout.count()},
                         {"remap_timeout", options.remap_timeout.count()},
                         {"kv_retry", options.kv_retry.count()},
                         {"start_asleep", options.start_asleep}});
}

RankOptions decode_setup(std::string_view payload) {
  const auto read = [](const json& setup) {
    RankOptions options;
    options.rank = setup.at("rank");
    options.ranks = setup.at("ranks");
    options.config = parse_model_config(setup.at("config").get<std::string>(), "set-up");
    options.driver = setup.at("driver");
    options.socket = setup.at("socket");
    options.device = base::DeviceOrdinal(setup.at("device").get<int>());
    const json& server_uid = setup.at("server_uid");
    if (!server_uid.is_null()) options.server_uid = server_uid.get<uid_t>();
    options.kv_bytes = setup.at("kv_bytes");
    options.load_timeout = base::Duration(setup.at("load_timeout").get<std::int64_t>());
    options.remap_timeout = base::Duration(setup.at("remap_timeout").get<std::int64_t>());
    options.kv_retry = base::Duration(setup.at("kv_retry").get<std::int64_t>());
    options.start_asleep = setup.at("start_asleep");
    return options;
  };
  return fo::json::read_object(
      payload, kMaxFrameBytes, [] { return "read the set-up"; }, read);
}

std::string encode_tags(WakeTags tags) {
  return std::string(1, static_cast<char>((tags.weights ? 1 : 0) | (tags.kv_cache ? 2 : 0)));
}

WakeTags decode_tags(std::string_view payload) {
  const int bits = payload.empty() ? 0 : payload.front();
  return {(bits & 1) != 0, (bits & 2) != 0};
}

std::string encode_step(const StepRequest& step) {
  const StepHeader header{step.position,
                          step.count,
                          step.wants_token ? 1u : 0u,
                          step.target_logprobs,
                          static_cast<std::uint32_t>(step.targets.size()),
                          static_cast<std::uint32_t>(step.constraints.biases.size()),
                          static_cast<std::uint32_t>(step.constraints.allowed.size()),
                          step.sampling};
  std::string payload;
  payload += as_text(std::span(&header, 1));
  payload += as_text(std::span(step.targets));
  payload += as_text(std::span(step.constraints.biases));
  payload += as_text(std::span(step.constraints.allowed));
  return payload.append(step.input);
}

StepRequest decode_step(std::string_view payload) {
  const auto header = take<StepHeader>(payload, 1).front();
  StepRequest step;
  step.position = header.position;
  step.count = header.count;
  step.wants_token = header.wants_token != 0;
  step.sampling = header.sampling;
  step.target_logprobs = header.target_logprobs;
  step.targets = take<TokenId>(payload, header.targets);
  step.constraints.biases = take<LogitBias>(payload, header.biases);
  step.constraints.allowed = take<TokenId>(payload, header.allowed);
  step.input = payload;
  return step;
}

std::string encode_range(const KvRange& range, std::string_view bytes) {
  return std::string(as_text(std::span(&range, 1))).append(bytes);
}

KvRange take_range(std::string_view& payload) { return take<KvRange>(payload, 1).front(); }

std::string encode_result(const StepResult& result) {
  std::string payload;
  for (const TokenChoice& score : result.scores) append_choice(payload, score, false);
  if (result.token) append_choice(payload, *result.token, true);
  return payload;
}

StepResult decode_result(std::string_view payload) {
  StepResult result;
  while (!payload.empty()) {
    const auto header = take<ChoiceHeader>(payload, 1).front();
    TokenChoice choice{header.chosen, take<TokenLogprob>(payload, header.top), header.rank};
    if (header.is_token != 0) {
      result.token = std::move(choice);
    } else {
      result.scores.push_back(std::move(choice));
    }
  }
  return result;
}

std::string encode_failure(ExitStatus status, std::string_view message) {
  const std::int32_t number = base::to_int(status);
  return std::string(as_text(std::span(&number, 1))) + std::string(message);
}

Error decode_failure(std::string_view payload) {
  std::int32_t number = base::to_int(ExitStatus::kSoftware);
  if (payload.size() < sizeof number) return {ExitStatus::kSoftware, "a rank failed"};
  std::memcpy(&number, payload.data(), sizeof number);
  return {static_cast<ExitStatus>(number), std::string(payload.substr(sizeof number))};
}

std::optional<Frame> read_frame(int fd) {
  FrameHeader header{};
  if (!read_exactly(fd, reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  check_header(header);
  Frame frame{static_cast<FrameKind>(header.kind), std::string(header.size, '\0')};
  if (header.size != 0 && !read_exactly(fd, frame.payload.data(), header.size)) fail_cut_short();
  return frame;
}

void write_frame(int fd, FrameKind kind, std::string_view payload) {
  os::write_all(fd, encode_frame(kind, payload), "write to the engine");
}

}  // namespace fo::refengine
