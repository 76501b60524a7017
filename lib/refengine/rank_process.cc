#include "refengine/rank_process.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "os/process/signals.h"
#include "refengine/events.h"
#include "refengine/frame.h"
#include "refengine/rank.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

constexpr int kEngineFd = STDIN_FILENO;

void tell(const json& event) { write_frame(kEngineFd, FrameKind::kEvent, event.dump()); }

void map_weights(Rank& rank) {
  rank.map_weights();
  json event = make_event("weights_mapped");
  event["bytes"] = rank.weight_bytes();
  event["positions"] = rank.positions();
  // Each rank maps the whole model.
  if (rank.is_first()) event["fingerprint"] = rank.fingerprint();
  tell(event);
}

void allocate_kv(Rank& rank) {
  rank.allocate_kv();
  json event = make_event("kv_allocated");
  event["bytes"] = rank.kv_bytes();
  event["positions"] = rank.positions();
  tell(event);
}

void step(Rank& rank, std::string_view payload) {
  const StepRequest request = decode_step(payload);
  const std::size_t width = rank.options().config.hidden_size;
  std::vector<float> hidden;
  if (rank.is_first()) {
    const auto tokens = as_values<TokenId>(request.input);
    hidden.resize(tokens.size() * width);
    rank.embed(tokens, hidden);
  } else {
    hidden = as_values<float>(request.input);
  }
  if (hidden.size() != request.count * width || request.targets.size() > request.count) {
    throw Error(ExitStatus::kProtocol, "read a step: its length does not match its header");
  }
  rank.forward(hidden, request.position);
  if (!rank.is_last()) {
    write_frame(kEngineFd, FrameKind::kHidden, as_text(std::span<const float>(hidden)));
    return;
  }
  StepResult result;
  for (std::size_t i = 0; i < request.targets.size(); ++i) {
    const auto state = std::span<const float>(hidden).subspan(i * width, width);
    result.scores.push_back(rank.score(state, request.targets[i], request.target_logprobs));
  }
  if (request.wants_token) {
    result.token = rank.choose(hidden, request.sampling, request.constraints,
                               request.position + request.count);
  }
  write_frame(kEngineFd, FrameKind::kToken, encode_result(result));
}

void read_kv(Rank& rank, std::string_view payload) {
  const std::vector<float> values = rank.read_kv(take_range(payload));
  write_frame(kEngineFd, FrameKind::kKv, as_text(std::span<const float>(values)));
}

void handle(Rank& rank, const Frame& frame) {
  std::string_view payload = frame.payload;
  switch (frame.kind) {
    case FrameKind::kStep:
      return step(rank, payload);
    case FrameKind::kReadKv:
      return read_kv(rank, payload);
    case FrameKind::kWriteKv: {
      const KvRange range = take_range(payload);
      rank.write_kv(range, as_values<float>(payload));
      break;
    }
    case FrameKind::kSleep:
      // Both may be released already after a partial wake.
      rank.free_kv();
      rank.unmap_weights();
      break;
    case FrameKind::kWake: {
      const WakeTags tags = decode_tags(payload);
      if (tags.weights) map_weights(rank);
      if (tags.kv_cache) allocate_kv(rank);
      break;
    }
    default:
      throw Error(ExitStatus::kProtocol, "read a frame: unexpected kind");
  }
  write_frame(kEngineFd, FrameKind::kDone, {});
}

// True if the engine sent something, false if the GMS closed the connection.
bool wait_for_engine(int gms_fd) {
  pollfd fds[2] = {{kEngineFd, POLLIN, 0}, {gms_fd, POLLIN | POLLRDHUP, 0}};
  while (::poll(fds, 2, -1) < 0) {
    if (errno != EINTR) base::throw_errno(errno, "wait for the engine");
  }
  return fds[0].revents != 0;
}

void serve() {
  const std::optional<Frame> setup = read_frame(kEngineFd);
  if (!setup) return;
  Rank rank(decode_setup(setup->payload));
  map_weights(rank);
  if (rank.options().start_asleep) {
    rank.unmap_weights();
  } else {
    allocate_kv(rank);
  }
  write_frame(kEngineFd, FrameKind::kDone, {});
  for (;;) {
    if (!wait_for_engine(rank.gms_fd())) {
      rank.forget_gms();
      tell(make_event("gms_lost"));
      continue;
    }
    const std::optional<Frame> frame = read_frame(kEngineFd);
    if (!frame) return;
    handle(rank, *frame);
  }
}

int fail(ExitStatus status, const char* message) {
  try {
    write_frame(kEngineFd, FrameKind::kFailed, encode_failure(status, message));
  } catch (const std::exception&) {
    // The engine has ended, so there is no receiver.
  }
  return base::to_int(status);
}

}  // namespace

int run_rank_process() {
  if (::close_range(STDERR_FILENO + 1, ~0u, 0) != 0) base::throw_errno(errno, "close descriptors");
  // ^C reaches the whole process group, but the engine ends its ranks itself.
  os::block_signals(os::ending_signals());
  try {
    serve();
    return base::to_int(ExitStatus::kOk);
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitStatus::kOsError, "out of memory");
  } catch (const std::exception& error) {
    return fail(ExitStatus::kSoftware, error.what());
  }
}

}  // namespace fo::refengine
