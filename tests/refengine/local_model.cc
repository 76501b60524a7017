#include "refengine/local_model.h"

#include <utility>

#include "refengine/make_model.h"
#include "support/temp_dir.h"

namespace fo::refengine {
namespace {

test::LoadedModel make_small(std::uint64_t seed, std::uint32_t max_positions) {
  const test::TempDir dir;
  MakeModelOptions options;
  options.hidden = 32;
  options.layers = 2;
  options.heads = 4;
  options.kv_heads = 2;
  options.max_positions = max_positions;
  options.seed = seed;
  make_model(dir.path("m"), options);
  return test::load_model(dir.path("m"));
}

boost::asio::awaitable<void> do_nothing() { co_return; }

boost::asio::awaitable<StepResult> run_step(LocalModel& model, Generation::Step step) {
  co_return model.step(step);
}

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

LocalEngine::LocalEngine(std::uint64_t seed) : model_(seed) {
  Scheduler::Model model;
  model.step = [this](Generation::Step step) { return run_step(model_, std::move(step)); };
  model.sleep = do_nothing;
  model.wake = [](WakeTags) { return do_nothing(); };
  context_->config = model_.config();
  context_->model_name = "model";
  context_->positions = model_.config().max_positions;
  context_->scheduler = std::make_shared<Scheduler>(loop_.executor(), std::move(model));
  context_->on_token = [] {};
  context_->is_ready = [] { return true; };
  server_ = std::make_unique<http::Server>(loop_.executor(), make_api(context_));
  port_ = server_->listen("127.0.0.1:0");
  loop_.start();
}

LocalEngine::~LocalEngine() {
  loop_.call([this] { server_.reset(); });
}

std::string LocalEngine::url(const std::string& path) const {
  return "http://127.0.0.1:" + std::to_string(port_) + path;
}

}  // namespace fo::refengine
