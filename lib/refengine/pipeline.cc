#include "refengine/pipeline.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "json/object.h"
#include "loop/event.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "os/process/process.h"
#include "refengine/kv/kv_layout.h"

namespace fo::refengine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using Socket = asio::local::stream_protocol::socket;

constexpr auto kReapTime = std::chrono::seconds(5);

}  // namespace

struct Pipeline::RankProcess {
  RankProcess(os::Child started, Socket connected, base::ByteCount kv_bytes)
      : child(std::move(started)),
        socket(std::move(connected)),
        answered(socket.get_executor()),
        kv_bytes_per_position(kv_bytes) {}

  /// Reaps the child once; nullopt while it runs.
  std::optional<os::WaitStatus> wait(const Deadline& deadline) {
    if (!ended) ended = child.wait(deadline);
    return ended;
  }

  os::Child child;
  std::optional<os::WaitStatus> ended;
  Socket socket;
  std::optional<Frame> answer;
  loop::Event answered;
  base::ByteCount kv_bytes_per_position;
};

Pipeline::Pipeline(OnEvent on_event, OnDeath on_death)
    : on_event_(std::move(on_event)), on_death_(std::move(on_death)) {}

Pipeline::~Pipeline() = default;

std::shared_ptr<Pipeline> Pipeline::create(const asio::any_io_executor& executor,
                                           const std::vector<RankOptions>& ranks, OnEvent on_event,
                                           OnDeath on_death) {
  std::shared_ptr<Pipeline> self(new Pipeline(std::move(on_event), std::move(on_death)));
  for (const RankOptions& options : ranks) self->start(executor, options);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    loop::spawn(executor, read_frames(self, rank));
  }
  return self;
}

void Pipeline::start(const asio::any_io_executor& executor, const RankOptions& options) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    base::throw_errno(errno, "create a socket pair");
  }
  base::UniqueFd ours(ends[0]);
  const base::UniqueFd theirs(ends[1]);
  os::SpawnOptions spawn;
  spawn.parent_death_signal = SIGKILL;
  spawn.stdin_fd = theirs.get();
  spawn.stdout_fd = STDERR_FILENO;  // stdout is for results, and a rank has none
  os::Child child = os::spawn({"/proc/self/exe", "rank", std::to_string(options.rank)}, spawn);
  // The set-up fits into the socket's buffer, so that the rank need not read it yet.
  os::write_all(ours.get(), encode_frame(FrameKind::kSetup, encode_setup(options)),
                "write to rank " + std::to_string(options.rank));
  Socket socket(executor, asio::local::stream_protocol(), ours.get());
  static_cast<void>(ours.release());
  const LayerRange layers = layers_of_rank(options.config.layers, options.rank, options.ranks);
  ranks_.push_back(std::make_unique<RankProcess>(
      std::move(child), std::move(socket), KvLayout::bytes_per_position(options.config, layers)));
}

// One reader for each rank: it delivers answers to the caller and events at once; the end of the
// stream is the end of the rank.
awaitable<void> Pipeline::read_frames(std::shared_ptr<Pipeline> self, std::size_t rank) {
  RankProcess& process = *self->ranks_[rank];
  try {
    for (;;) {
      FrameHeader header{};
      const auto header_buffer = asio::buffer(&header, sizeof header);
      co_await asio::async_read(process.socket, header_buffer, asio::use_awaitable);
      check_header(header);
      Frame frame;
      frame.kind = static_cast<FrameKind>(header.kind);
      frame.payload.resize(header.size);
      const auto payload_buffer = asio::buffer(frame.payload);
      co_await asio::async_read(process.socket, payload_buffer, asio::use_awaitable);
      if (frame.kind == FrameKind::kFailed) {
        self->die(rank, decode_failure(frame.payload));
        co_return;
      }
      if (frame.kind == FrameKind::kEvent) {
        self->handle_event(rank, frame.payload);
        continue;
      }
      process.answer = std::move(frame);
      process.answered.notify();
    }
  } catch (const boost::system::system_error&) {
    if (!self->over_) self->die(rank, self->describe_end(rank));
  } catch (const Error& error) {
    self->die(rank, error);
  }
}

void Pipeline::handle_event(std::size_t rank, const std::string& payload) {
  std::optional<nlohmann::json> event = fo::json::find_object(payload, kMaxFrameBytes);
  if (!event) return;
  (*event)["rank"] = rank;
  on_event_(*event);
}

void Pipeline::die(std::size_t rank, const Error& why) {
  if (std::exchange(over_, true)) return;
  if (ranks_.size() == 1) return on_death_(why);
  on_death_(Error(why.status(), "rank " + std::to_string(rank) + ": " + why.what()));
}

Error Pipeline::describe_end(std::size_t rank) const {
  const auto status = ranks_[rank]->wait(Deadline::after(kReapTime));
  const std::string process = "process " + std::to_string(ranks_[rank]->child.pid());
  if (!status) return {ExitStatus::kSoftware, process + " closed its socket but does not end"};
  if (*status > 128) {
    return {ExitStatus::kSoftware, process + " died of signal " + std::to_string(*status - 128)};
  }
  return {ExitStatus::kSoftware, process + " ended with status " + std::to_string(*status)};
}

awaitable<void> Pipeline::send(std::size_t rank, FrameKind kind, std::string payload) {
  const std::string bytes = encode_frame(kind, payload);
  const auto buffer = asio::buffer(bytes);
  boost::system::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  // On an error the rank has ended, which its reader reports.
  co_await asio::async_write(ranks_[rank]->socket, buffer, token);
}

awaitable<Frame> Pipeline::receive(std::size_t rank) {
  RankProcess& process = *ranks_[rank];
  while (!process.answer) co_await process.answered.wait();
  Frame frame = std::move(*process.answer);
  process.answer.reset();
  co_return frame;
}

awaitable<void> Pipeline::wait_until_ready() {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) co_await receive(rank);
}

awaitable<StepResult> Pipeline::step(Generation::Step step) {
  StepRequest request;
  request.position = step.position;
  request.count = static_cast<std::uint32_t>(step.tokens.size());
  request.wants_token = step.wants_token;
  request.sampling = step.sampling;
  request.constraints = std::move(step.constraints);
  request.targets.assign(step.targets.begin(), step.targets.end());
  request.target_logprobs = step.target_logprobs;
  std::string data(as_text(step.tokens));
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    request.input = data;
    std::string payload = encode_step(request);
    co_await send(rank, FrameKind::kStep, std::move(payload));
    Frame frame = co_await receive(rank);
    data = std::move(frame.payload);
  }
  co_return decode_result(data);
}

awaitable<std::string> Pipeline::read_kv(KvRange range) {
  std::string bytes;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::string payload = encode_range(range, {});
    co_await send(rank, FrameKind::kReadKv, std::move(payload));
    const Frame frame = co_await receive(rank);
    bytes += frame.payload;
  }
  co_return bytes;
}

awaitable<void> Pipeline::write_kv(KvRange range, std::string bytes) {
  std::string_view rest = bytes;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::size_t size = range.count * ranks_[rank]->kv_bytes_per_position;
    std::string payload = encode_range(range, rest.substr(0, size));
    rest.remove_prefix(std::min(size, rest.size()));
    co_await send(rank, FrameKind::kWriteKv, std::move(payload));
    co_await receive(rank);
  }
}

awaitable<void> Pipeline::send_all(FrameKind kind, std::string payload) {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    std::string copy = payload;
    co_await send(rank, kind, std::move(copy));
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) co_await receive(rank);
}

awaitable<void> Pipeline::sleep() {
  std::string nothing;
  co_await send_all(FrameKind::kSleep, std::move(nothing));
}

awaitable<void> Pipeline::wake(WakeTags tags) {
  std::string payload = encode_tags(tags);
  co_await send_all(FrameKind::kWake, std::move(payload));
}

void Pipeline::stop(const Deadline& deadline) {
  over_ = true;
  for (const auto& rank : ranks_) {
    boost::system::error_code ignored;
    rank->socket.close(ignored);
  }
  for (const auto& rank : ranks_) {
    if (rank->wait(deadline)) continue;
    rank->child.signal(SIGKILL);
    static_cast<void>(rank->wait(Deadline::after(kReapTime)));
  }
}

}  // namespace fo::refengine
