// A small model with random weights that runs in the test's process, behind the engine's API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/support.h"
#include "loop/event.h"
#include "refengine/api/api.h"
#include "refengine/model/transformer.h"
#include "refengine/reference_model.h"

namespace fo::refengine {

/// One rank in host memory.
class LocalModel {
 public:
  /// As many positions as the model has.
  explicit LocalModel(std::uint64_t seed = 3, std::uint32_t max_positions = 256);

  StepResult step(const Generation::Step& step);
  /// As Rank's.
  [[nodiscard]] std::string read_kv(KvRange range);
  void write_kv(KvRange range, std::string_view bytes);
  [[nodiscard]] std::string fingerprint() const;
  /// The number of tokens that steps have processed.
  [[nodiscard]] std::size_t processed() const { return processed_; }
  [[nodiscard]] const ModelConfig& config() const { return loaded_.config; }

 private:
  std::vector<std::span<float>> kv_rows(KvRange range);

  test::LoadedModel loaded_;
  LayerRange layers_;
  KvLayout layout_;
  Transformer transformer_;
  std::vector<float> kv_;
  std::size_t processed_ = 0;
};

/// An engine with such a model, on a free port, which pulls KV caches from 127.0.0.0/8. The kernel
/// keeps little of its answers.
class LocalEngine {
 public:
  struct Options {
    std::uint64_t seed = 3;
    base::ByteCount kv_snapshot_bytes = base::kMiB;
    std::uint32_t max_positions = 256;
  };
  LocalEngine() : LocalEngine(Options{}) {}
  explicit LocalEngine(const Options& options);
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& path = "") const;
  LocalModel& model() { return model_; }

  /// From now on, requests stop after `steps` steps. They go on while a KV cache is sent, and after
  /// release().
  void hold_after(std::size_t steps);
  void release();
  /// Whether a request has stopped.
  bool is_held();
  std::size_t processed() {
    return loop_.call([this] { return model_.processed(); });
  }

 private:
  boost::asio::awaitable<StepResult> run_step(Generation::Step step);
  boost::asio::awaitable<std::string> read_kv(KvRange range);
  boost::asio::awaitable<void> write_kv(KvRange range, std::string bytes);

  LocalModel model_;
  http::test::ThreadLoop loop_;
  loop::Event changed_{loop_.executor()};
  std::optional<std::size_t> steps_left_;
  bool is_held_ = false;
  std::shared_ptr<ApiContext> context_ = std::make_shared<ApiContext>();
  std::unique_ptr<http::Server> server_;
  std::uint16_t port_ = 0;
};

}  // namespace fo::refengine
