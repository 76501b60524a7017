#include "refengine/model/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "refengine/model/generation.h"
#include "refengine/model/make_model.h"
#include "refengine/model/sampler.h"
#include "refengine/model/tokens.h"
#include "refengine/reference_model.h"
#include "support/failure.h"
#include "support/temp_dir.h"

namespace fo::refengine {
namespace {

using base::Error;
using test::TempDir;

struct Shape {
  std::uint32_t hidden = 48;
  std::uint32_t layers = 3;
  std::uint32_t heads = 6;
  std::uint32_t kv_heads = 2;
  DType dtype = DType::kF32;
};

test::LoadedModel made(const Shape& shape) {
  const TempDir dir;
  const MakeModelOptions options{.layers = shape.layers,
                                 .hidden = shape.hidden,
                                 .heads = shape.heads,
                                 .kv_heads = shape.kv_heads,
                                 .dtype = shape.dtype,
                                 .seed = 3};
  make_model(dir.path("m"), options);
  return test::load_model(dir.path("m"));
}

// One model over one or several ranks in this process.
class Pipeline {
 public:
  Pipeline(const test::LoadedModel& model, std::uint32_t ranks, std::size_t chunk = kChunkTokens)
      : config_(model.config), chunk_(chunk) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const LayerRange layers = layers_of_rank(config_.layers, rank, ranks);
      const KvLayout layout(config_, layers,
                            KvLayout::bytes_per_position(config_, layers) * kPositions);
      // Unwritten memory must never be read.
      std::vector<float> memory(layout.used_bytes() / sizeof(float),
                                std::numeric_limits<float>::quiet_NaN());
      ranks_.push_back({Transformer(config_, layers, model.weights), layout, std::move(memory)});
    }
  }

  /// Processes `tokens` at `position` and returns the logits after the last.
  std::vector<float> feed(std::span<const TokenId> tokens, std::size_t position) {
    std::vector<float> hidden;
    while (!tokens.empty()) {
      const auto piece = tokens.first(std::min(chunk_, tokens.size()));
      tokens = tokens.subspan(piece.size());
      hidden.resize(piece.size() * config_.hidden_size);
      ranks_.front().transformer.embed(piece, hidden);
      for (Rank& rank : ranks_) {
        rank.transformer.forward(hidden, position, rank.layout, rank.kv.data());
      }
      position += piece.size();
    }
    std::vector<float> logits(config_.vocab_size);
    ranks_.back().transformer.logits(std::span(hidden).last(config_.hidden_size), logits);
    return logits;
  }

  std::vector<TokenId> complete(std::vector<TokenId> prompt, std::size_t count) {
    std::vector<TokenId> output;
    std::size_t position = 0;
    while (output.size() < count) {
      const TokenId token = choose_token(feed(prompt, position), {}, {}, 0).chosen.token;
      position += prompt.size();
      prompt = {token};
      output.push_back(token);
    }
    return output;
  }

 private:
  static constexpr std::size_t kPositions = 128;
  struct Rank {
    Transformer transformer;
    KvLayout layout;
    std::vector<float> kv;
  };
  ModelConfig config_;
  std::size_t chunk_;
  std::vector<Rank> ranks_;
};

void expect_close(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double scale = 0;
  for (const double value : want) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(got[i]), want[i], 2e-4 * scale) << "token " << i;
  }
}

class EveryDtype : public ::testing::TestWithParam<DType> {};

TEST_P(EveryDtype, LogitsAgreeWithTheDefinition) {
  const test::LoadedModel model = made({.dtype = GetParam()});
  const std::vector<TokenId> prompt = encode_text("The quick brown fox", model.config);
  for (std::size_t size : {std::size_t{1}, std::size_t{2}, prompt.size()}) {
    const std::vector<TokenId> part(prompt.begin(),
                                    prompt.begin() + static_cast<std::ptrdiff_t>(size));
    Pipeline pipeline(model, 1);
    expect_close(pipeline.feed(part, 0), test::reference_logits(model, part));
  }
}

TEST_P(EveryDtype, GreedyTokensAgreeWithTheDefinition) {
  const test::LoadedModel model = made({.dtype = GetParam()});
  for (const char* text : {"a", "Hello, world"}) {
    const std::vector<TokenId> prompt = encode_text(text, model.config);
    EXPECT_EQ(Pipeline(model, 1).complete(prompt, 12), test::reference_tokens(model, prompt, 12));
  }
}

INSTANTIATE_TEST_SUITE_P(Transformer, EveryDtype,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBf16),
                         [](const auto& tested) {
                           return std::string(torch_dtype_name(tested.param));
                         });

class EveryHeadRatio : public ::testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {};

TEST_P(EveryHeadRatio, LogitsAgreeWithTheDefinition) {
  const auto [heads, kv_heads] = GetParam();
  const test::LoadedModel model =
      made({.hidden = 48, .layers = 2, .heads = heads, .kv_heads = kv_heads});
  const std::vector<TokenId> prompt = encode_text("grouped", model.config);
  expect_close(Pipeline(model, 1).feed(prompt, 0), test::reference_logits(model, prompt));
}

INSTANTIATE_TEST_SUITE_P(Transformer, EveryHeadRatio,
                         ::testing::Values(std::pair{1u, 1u}, std::pair{8u, 8u}, std::pair{8u, 1u},
                                           std::pair{8u, 4u}, std::pair{6u, 2u},
                                           std::pair{24u, 3u}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.first) + "over" +
                                  std::to_string(tested.param.second);
                         });

TEST(Transformer, HeadDimNeedNotDivideHidden) {
  test::LoadedModel model = made({.hidden = 48, .layers = 1, .heads = 6, .kv_heads = 6});
  // The same 48 rows as four heads of twelve: another valid model.
  model.config.heads = model.config.kv_heads = 4;
  model.config.head_dim = 12;
  const std::vector<TokenId> prompt = encode_text("odd", model.config);
  expect_close(Pipeline(model, 1).feed(prompt, 0), test::reference_logits(model, prompt));
}

TEST(Transformer, PositionsTurnAsTheThetaSays) {
  test::LoadedModel model = made({});
  const std::vector<TokenId> prompt = encode_text(std::string(60, 'x') + "yzzy", model.config);
  std::vector<std::vector<float>> seen;
  for (const double theta : {100.0, 10000.0, 500000.0}) {
    model.config.rope_theta = theta;
    seen.push_back(Pipeline(model, 1).feed(prompt, 0));
    expect_close(seen.back(), test::reference_logits(model, prompt));
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(Transformer, TheOrderOfTheTokensMatters) {
  const test::LoadedModel model = made({});
  const std::vector<TokenId> one = encode_text("abc", model.config);
  const std::vector<TokenId> other = encode_text("bac", model.config);
  EXPECT_NE(Pipeline(model, 1).feed(one, 0), Pipeline(model, 1).feed(other, 0));
}

TEST(Transformer, TiedEmbeddingsAreTheHead) {
  test::LoadedModel model = made({});
  model.config.tie_word_embeddings = true;
  model.weights.erase("lm_head.weight");
  const std::vector<TokenId> prompt = encode_text("tied", model.config);
  const std::vector<double> want = test::reference_logits(model, prompt);
  expect_close(Pipeline(model, 1).feed(prompt, 0), want);
  expect_close(Pipeline(model, 3).feed(prompt, 0), want);
}

TEST(Transformer, ChunksDoNotChangeABit) {
  const test::LoadedModel model = made({.dtype = DType::kBf16});
  const std::vector<TokenId> prompt =
      encode_text("cut me into pieces of any size at all, please", model.config);
  const std::vector<float> whole = Pipeline(model, 1, 1000).feed(prompt, 0);
  for (const std::size_t chunk : {1u, 2u, 7u, 32u}) {
    EXPECT_EQ(Pipeline(model, 1, chunk).feed(prompt, 0), whole) << chunk;
  }
}

TEST(Transformer, RanksDoNotChangeABit) {
  const test::LoadedModel model = made({.layers = 4});
  const std::vector<TokenId> prompt = encode_text("split between devices", model.config);
  const std::vector<float> logits = Pipeline(model, 1).feed(prompt, 0);
  const std::vector<TokenId> tokens = Pipeline(model, 1).complete(prompt, 20);
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    EXPECT_EQ(Pipeline(model, ranks).feed(prompt, 0), logits) << ranks;
    EXPECT_EQ(Pipeline(model, ranks).complete(prompt, 20), tokens) << ranks;
  }
}

TEST(Transformer, ACacheUsedBeforeDoesNotShow) {
  const test::LoadedModel model = made({});
  Pipeline used(model, 1);
  used.complete(encode_text("something much longer than the next", model.config), 10);
  const std::vector<TokenId> prompt = encode_text("fresh", model.config);
  EXPECT_EQ(used.feed(prompt, 0), Pipeline(model, 1).feed(prompt, 0));
}

TEST(Transformer, OutputDependsOnThePrompt) {
  const test::LoadedModel model = made({});
  std::set<std::vector<TokenId>> outputs;
  for (const char* text : {"a", "b", "ab", "ba", "hello there", "hellp there"}) {
    outputs.insert(Pipeline(model, 1).complete(encode_text(text, model.config), 16));
  }
  EXPECT_EQ(outputs.size(), 6u);
}

TEST(Transformer, LooksUpItsOwnTensorsOnly) {
  test::LoadedModel model = made({.layers = 3});
  std::erase_if(model.weights,
                [](const auto& entry) { return !entry.first.starts_with("model.layers.1."); });
  EXPECT_NO_THROW(Transformer(model.config, {1, 2}, model.weights));
  EXPECT_THROW(Transformer(model.config, {0, 1}, model.weights), Error);
}

TEST(Transformer, EveryMissingOrMisshapenTensorIsNamed) {
  const test::LoadedModel model = made({.layers = 1});
  for (const TensorSpec& spec : model_tensors(model.config)) {
    const auto message = [&](const WeightView& weights) {
      const test::Failure failure = test::failure_of([&] {
        Transformer(model.config, {0, 1}, weights);
      });
      EXPECT_EQ(failure.status, base::ExitStatus::kBadData);
      return failure.message;
    };
    WeightView weights = model.weights;
    weights[spec.name].shape.push_back(1);
    EXPECT_TRUE(message(weights).starts_with("bind tensor '" + spec.name + "': shape ["));
    weights.erase(spec.name);
    EXPECT_EQ(message(weights), "bind tensor '" + spec.name + "': missing");
  }
}

}  // namespace
}  // namespace fo::refengine
