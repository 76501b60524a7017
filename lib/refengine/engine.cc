#include "refengine/engine.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <ctime>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "loop/daemon.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "net/networks.h"
#include "os/log.h"
#include "refengine/api/api.h"
#include "refengine/events.h"
#include "refengine/kv/kv_layout.h"
#include "refengine/pipeline.h"

namespace fo::refengine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;
using nlohmann::json;

constexpr auto kDrainTime = std::chrono::seconds(5);
constexpr auto kRankEndTime = std::chrono::seconds(2);

std::string model_name(const std::string& dir) {
  const auto path = std::filesystem::path(dir).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::vector<RankOptions> rank_options(const EngineOptions& options, const ModelConfig& config) {
  std::vector<RankOptions> ranks;
  for (const RankPlace& place : options.ranks) {
    RankOptions rank{place, options};
    rank.rank = static_cast<std::uint32_t>(ranks.size());
    rank.ranks = static_cast<std::uint32_t>(options.ranks.size());
    rank.config = config;
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

// Runs on one loop, which is destroyed after this object together with pending operations.
class Engine {
 public:
  Engine(loop::Daemon& daemon, asio::io_context& loop, const EngineOptions& options,
         const std::function<void(const EngineReady&)>& on_ready)
      : daemon_(daemon),
        loop_(loop),
        options_(options),
        on_ready_(on_ready),
        config_(read_model_config(options.model)),
        status_fd_(options.status_fd) {
    check_kv_blocks();
    if (options.ranks.size() > config_.layers) {
      throw Error(ExitStatus::kUsage, std::to_string(options.ranks.size()) + " ranks for " +
                                          std::to_string(config_.layers) + " layers");
    }
  }

  void run() {
    pipeline_ = Pipeline::create(
        loop_.get_executor(), rank_options(options_, config_),
        [this](const json& event) { handle_event(event); },
        [this](const Error& why) { fail(std::make_exception_ptr(why)); });
    spawn(start());
    spawn(daemon_.run([this](loop::Stop how) { stop(how); }));
    loop_.run();
    // After a failure there is no need to wait.
    const auto grace = failure_ || hurried_ ? base::Duration::zero() : kRankEndTime;
    pipeline_->stop(Deadline::after(grace));
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void spawn(awaitable<void> body) {
    loop::spawn(loop_, std::move(body), [this](std::exception_ptr error) {
      if (error) fail(std::move(error));
    });
  }

  // A block of the KV cache must fit into one frame between the engine and a rank.
  void check_kv_blocks() const {
    if (options_.kv_sources.empty()) return;
    static_cast<void>(net::Networks(options_.kv_sources));
    const base::ByteCount block =
        kBlockTokens * KvLayout::bytes_per_position(config_, {0, config_.layers});
    if (block + sizeof(KvRange) > kMaxFrameBytes) {
      throw Error(ExitStatus::kUsage,
                  "move KV caches: a block of " + base::format_size(block) + " is too large");
    }
  }

  void fail(std::exception_ptr error) {
    if (!failure_) failure_ = std::move(error);
    daemon_.begin_stop();
    loop_.stop();
  }

  awaitable<void> start() {
    co_await pipeline_->wait_until_ready();
    make_scheduler();
    auto context = std::make_shared<ApiContext>();
    context->config = config_;
    context->model_name = model_name(options_.model);
    context->version = options_.version;
    context->created = std::time(nullptr);
    context->positions = ready_.positions;
    context->scheduler = scheduler_;
    if (!options_.kv_sources.empty()) make_kv_transfer(context->model_name);
    context->kv_transfer = kv_transfer_;
    context->on_token = [this] { note_token(); };
    context->is_ready = [this] { return daemon_.is_ready(); };
    server_.emplace(loop_.get_executor(), make_api(std::move(context)), api_limits());
    net::Address address{options_.host, options_.port};
    ready_.port = server_->listen(net::to_string(address));
    address.port = ready_.port;
    ready_.address = net::to_string(address);
    ready_.listening_seconds = since_start(os::monotonic_seconds());
    json event = make_event("listening");
    event["address"] = ready_.address;
    write_event(status_fd_, event);
    on_ready_(ready_);
    daemon_.status("listening on " + ready_.address);
    daemon_.ready();
  }

  void make_scheduler() {
    Scheduler::Model model;
    model.step = [this](Generation::Step step) { return pipeline_->step(std::move(step)); };
    model.read_kv = [this](KvRange range) { return pipeline_->read_kv(range); };
    model.write_kv = [this](KvRange range, std::string bytes) {
      return pipeline_->write_kv(range, std::move(bytes));
    };
    model.sleep = [this] { return sleep(); };
    model.wake = [this](WakeTags tags) { return wake(tags); };
    scheduler_ =
        std::make_shared<Scheduler>(loop_.get_executor(), std::move(model), options_.start_asleep);
  }

  void make_kv_transfer(const std::string& model) {
    KvTransfer::Options options{net::Networks(options_.kv_sources), options_.kv_snapshot_bytes};
    kv_transfer_ = std::make_shared<KvTransfer>(std::move(options), config_, model,
                                                ready_.positions, scheduler_);
    kv_transfer_->set_fingerprint(fingerprint_);
  }

  awaitable<void> sleep() {
    co_await pipeline_->sleep();
    write_event(status_fd_, make_event("asleep"));
  }

  awaitable<void> wake(WakeTags tags) {
    co_await pipeline_->wake(tags);
    token_expected_ = true;
    write_event(status_fd_, make_event("woken"));
  }

  void note_token() {
    if (std::exchange(token_expected_, false)) write_event(status_fd_, make_event("first_token"));
  }

  [[nodiscard]] double since_start(double monotonic) const { return monotonic - started_; }

  void handle_event(const json& event) {
    write_event(status_fd_, event);
    const std::string name = event.value("event", "");
    const double at = since_start(event.value("monotonic", 0.0));
    if (name == "weights_mapped") {
      fingerprint_ = event.value("fingerprint", fingerprint_);
      if (kv_transfer_) kv_transfer_->set_fingerprint(fingerprint_);
      ready_.weights_mapped_seconds = std::max(ready_.weights_mapped_seconds, at);
      const std::uint32_t positions = event.value("positions", 0u);
      // The rank with the smallest capacity limits the engine.
      ready_.positions = ready_.positions == 0 ? positions : std::min(ready_.positions, positions);
    } else if (name == "kv_allocated") {
      ready_.kv_allocated_seconds = std::max(ready_.kv_allocated_seconds, at);
    } else if (name == "gms_lost") {
      lose_gms(event.value("rank", 0u));
    }
  }

  void lose_gms(std::uint32_t rank) {
    const std::string what =
        "connection to GMS " + base::quoted(options_.ranks.at(rank).socket) + ": lost";
    if (options_.exit_on_gms_loss) {
      return fail(std::make_exception_ptr(Error(ExitStatus::kUnavailable, what)));
    }
    os::log(os::LogLevel::kWarning, "{}, the weights stay mapped", what);
  }

  void stop(loop::Stop how) {
    hurried_ = how == loop::Stop::kNow;
    if (hurried_ || !server_) return loop_.stop();
    spawn(drain());
  }

  awaitable<void> drain() {
    const Deadline deadline = Deadline::after(kDrainTime);
    co_await server_->stop(deadline);
    loop_.stop();
  }

  loop::Daemon& daemon_;
  asio::io_context& loop_;
  const EngineOptions& options_;
  const std::function<void(const EngineReady&)>& on_ready_;
  const double started_ = os::monotonic_seconds();
  ModelConfig config_;
  os::StatusFd status_fd_;
  std::shared_ptr<Pipeline> pipeline_;
  std::shared_ptr<Scheduler> scheduler_;
  std::string fingerprint_;
  std::shared_ptr<KvTransfer> kv_transfer_;
  std::optional<http::Server> server_;
  EngineReady ready_;
  std::exception_ptr failure_;
  bool token_expected_ = true;
  bool hurried_ = false;
};

}  // namespace

std::string to_json(const EngineReady& ready) {
  return nlohmann::ordered_json{{"ready", true},
                                {"address", ready.address},
                                {"port", ready.port},
                                {"positions", ready.positions},
                                {"weights_mapped_seconds", ready.weights_mapped_seconds},
                                {"kv_allocated_seconds", ready.kv_allocated_seconds},
                                {"listening_seconds", ready.listening_seconds}}
      .dump();
}

void run_engine(const EngineOptions& options,
                const std::function<void(const EngineReady&)>& on_ready) {
  loop::Daemon daemon;
  asio::io_context loop(1);
  Engine engine(daemon, loop, options, on_ready);
  engine.run();
}

}  // namespace fo::refengine
