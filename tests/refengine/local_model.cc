#include "refengine/local_model.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "refengine/kv/fingerprint.h"
#include "refengine/model/make_model.h"
#include "support/temp_dir.h"

namespace fo::refengine {
namespace {

test::LoadedModel make_small(std::uint64_t seed, std::uint32_t max_positions) {
  const test::TempDir dir;
  const MakeModelOptions options{.layers = 2,
                                 .hidden = 32,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .max_positions = max_positions,
                                 .seed = seed};
  make_model(dir.path("m"), options);
  return test::load_model(dir.path("m"));
}

boost::asio::awaitable<void> do_nothing() { co_return; }

}  // namespace

LocalModel::LocalModel(std::uint64_t seed, std::uint32_t max_positions)
    : loaded_(make_small(seed, max_positions)),
      layers_{0, loaded_.config.layers},
      layout_(loaded_.config, layers_,
              KvLayout::bytes_per_position(loaded_.config, layers_) * max_positions),
      transformer_(loaded_.config, layers_, loaded_.weights),
      kv_(layout_.used_bytes() / sizeof(float)) {}

StepResult LocalModel::step(const Generation::Step& step) {
  const std::size_t width = loaded_.config.hidden_size;
  std::vector<float> hidden(step.tokens.size() * width);
  std::vector<float> logits(loaded_.config.vocab_size);
  processed_ += step.tokens.size();
  transformer_.embed(step.tokens, hidden);
  transformer_.forward(hidden, step.position, layout_, kv_.data());
  StepResult result;
  for (std::size_t i = 0; i < step.targets.size(); ++i) {
    transformer_.logits(std::span(hidden).subspan(i * width, width), logits);
    result.scores.push_back(score_token(logits, step.targets[i], step.target_logprobs));
  }
  if (!step.wants_token) return result;
  transformer_.logits(std::span(hidden).last(width), logits);
  result.token =
      choose_token(logits, step.sampling, step.constraints, step.position + step.tokens.size());
  return result;
}

std::vector<std::span<float>> LocalModel::kv_rows(KvRange range) {
  std::vector<std::span<float>> rows;
  for (const std::size_t at : layout_.rows(range.position)) {
    rows.push_back(std::span(kv_).subspan(at, range.count * layout_.head_dim()));
  }
  return rows;
}

std::string LocalModel::read_kv(KvRange range) {
  std::string bytes;
  for (const std::span<float> row : kv_rows(range)) bytes += as_text(std::span<const float>(row));
  return bytes;
}

void LocalModel::write_kv(KvRange range, std::string_view bytes) {
  for (const std::span<float> row : kv_rows(range)) {
    std::ranges::copy(as_values<float>(bytes.substr(0, row.size_bytes())), row.begin());
    bytes.remove_prefix(row.size_bytes());
  }
}

std::string LocalModel::fingerprint() const {
  return fingerprint_of(loaded_.config, loaded_.weights);
}

LocalEngine::LocalEngine(const Options& options) : model_(options.seed, options.max_positions) {
  Scheduler::Model model;
  model.step = [this](Generation::Step step) { return run_step(std::move(step)); };
  model.read_kv = [this](KvRange range) { return read_kv(range); };
  model.write_kv = [this](KvRange range, std::string bytes) {
    return write_kv(range, std::move(bytes));
  };
  model.sleep = do_nothing;
  model.wake = [](WakeTags) { return do_nothing(); };
  context_->config = model_.config();
  context_->model_name = "model";
  context_->positions = model_.config().max_positions;
  context_->scheduler = std::make_shared<Scheduler>(loop_.executor(), std::move(model));
  context_->kv_transfer = std::make_shared<KvTransfer>(
      KvTransfer::Options{net::Networks("127.0.0.0/8"), options.kv_snapshot_bytes},
      context_->config, context_->model_name, context_->positions, context_->scheduler);
  context_->kv_transfer->set_fingerprint(model_.fingerprint());
  context_->on_token = [] {};
  context_->is_ready = [] { return true; };
  server_ = std::make_unique<http::Server>(loop_.executor(), make_api(context_), api_limits());
  http::Listener listener = http::test::small_listener();
  port_ = listener.port;
  server_->listen(std::move(listener.fd));
  loop_.start();
}

LocalEngine::~LocalEngine() {
  loop_.call([this] {
    // A held request ends with its connection, as when a process is killed.
    server_.reset();
    steps_left_.reset();
    changed_.notify();
  });
}

std::string LocalEngine::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

void LocalEngine::hold_after(std::size_t steps) {
  loop_.call([&] { steps_left_ = steps; });
}

void LocalEngine::release() {
  loop_.call([this] {
    steps_left_.reset();
    changed_.notify();
  });
}

bool LocalEngine::is_held() {
  return loop_.call([this] { return is_held_; });
}

boost::asio::awaitable<StepResult> LocalEngine::run_step(Generation::Step step) {
  while (steps_left_ == 0u && context_->kv_transfer->sending() == 0) {
    is_held_ = true;
    co_await changed_.wait(base::Deadline::after(std::chrono::milliseconds(1)));
  }
  is_held_ = false;
  // As in an engine, others run meanwhile.
  co_await boost::asio::post(loop_.executor(), boost::asio::use_awaitable);
  if (steps_left_.value_or(0) > 0) --*steps_left_;
  co_return model_.step(step);
}

boost::asio::awaitable<std::string> LocalEngine::read_kv(KvRange range) {
  co_return model_.read_kv(range);
}

boost::asio::awaitable<void> LocalEngine::write_kv(KvRange range, std::string bytes) {
  model_.write_kv(range, bytes);
  co_return;
}

}  // namespace fo::refengine
