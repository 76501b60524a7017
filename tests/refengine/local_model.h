// A small model with random weights that runs in the test's process, behind the engine's API.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "http/support.h"
#include "refengine/api.h"
#include "refengine/reference_model.h"
#include "refengine/transformer.h"

namespace fo::refengine {

/// One rank in host memory.
class LocalModel {
 public:
  /// As many positions as the model has.
  explicit LocalModel(std::uint64_t seed = 3, std::uint32_t max_positions = 256);

  StepResult step(const Generation::Step& step);
  [[nodiscard]] const ModelConfig& config() const { return loaded_.config; }

 private:
  test::LoadedModel loaded_;
  LayerRange layers_;
  KvLayout layout_;
  Transformer transformer_;
  std::vector<float> kv_;
};

/// An engine with such a model, on a free port.
class LocalEngine {
 public:
  explicit LocalEngine(std::uint64_t seed = 3);
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  [[nodiscard]] std::string url(const std::string& path) const;
  LocalModel& model() { return model_; }

 private:
  LocalModel model_;
  http::test::ThreadLoop loop_;
  std::shared_ptr<ApiContext> context_ = std::make_shared<ApiContext>();
  std::unique_ptr<http::Server> server_;
  std::uint16_t port_ = 0;
};

}  // namespace fo::refengine
