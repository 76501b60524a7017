// A rank with its weights in a real GMS.
#include "refengine/rank.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>

#include "cuda/driver_calls.h"
#include "gms/gms_process.h"
#include "refengine/model/make_model.h"
#include "refengine/model/tokens.h"
#include "refengine/reference_model.h"
#include "support/failure.h"

namespace fo::refengine {
namespace {

using base::ExitStatus;
using test::status_of;

class RankTest : public gms::OneServer {
 protected:
  void SetUp() override {
    OneServer::SetUp();
    if (IsSkipped()) return;
    if (!test::on_gpu()) set("GMS_SIM_VRAM", "64MiB");
    set("GMS_SIM_CONTEXT_SIZE", "0");
    start();
    driver_ = cuda::Driver::open(test::driver());
    context_ = cuda::PrimaryContext::retain(driver_, base::DeviceOrdinal(0));
  }

  test::LoadedModel make(std::uint64_t seed, std::uint32_t hidden = 32) {
    const MakeModelOptions options{
        .layers = 4, .hidden = hidden, .heads = 4, .kv_heads = 2, .seed = seed};
    const std::string dir = path("model-" + std::to_string(seed) + "-" + std::to_string(hidden));
    make_model(dir, options);
    return test::load_model(dir);
  }

  // All tensors in one allocation.
  void publish(const test::LoadedModel& model) {
    gms::MemoryManager writer(driver_, cuda::device_info(*driver_, base::DeviceOrdinal(0)),
                              socket_);
    ASSERT_EQ(writer.connect(gms::LockType::kRw, gms::soon()), gms::Grant::kRw);
    base::ByteCount size = 0;
    for (const auto& [name, bytes] : model.bytes) size += base::round_up(bytes.size(), 256);
    const gms::MappedAllocation& made = writer.allocate(size);
    base::ByteCount at = 0;
    for (const auto& [name, bytes] : model.bytes) {
      cuda::copy_to_device(*driver_, made.address + at, std::as_bytes(std::span(bytes)));
      const TensorView& view = model.weights.at(name);
      const nlohmann::json value{{"dtype", "torch." + std::string(torch_dtype_name(view.dtype))},
                                 {"shape", view.shape}};
      writer.rpc().put_metadata(name, made.allocation.allocation_id, at, value.dump());
      at += base::round_up(bytes.size(), 256);
    }
    writer.commit();
  }

  RankOptions options(const ModelConfig& config) const {
    RankOptions options;
    options.config = config;
    options.driver = test::driver();
    options.socket = socket_;
    options.kv_bytes = (test::on_gpu() ? 256 : 8) * base::kMiB;
    options.load_timeout = std::chrono::seconds(20);
    options.remap_timeout = std::chrono::milliseconds(200);
    return options;
  }

  static void begin(Rank& rank) {
    rank.map_weights();
    rank.allocate_kv();
  }

  static std::vector<TokenId> complete(const std::vector<Rank*>& ranks, const ModelConfig& config,
                                       std::size_t count, const Sampling& sampling = {}) {
    std::vector<TokenId> output;
    std::vector<TokenId> input = encode_text("Hello, rank", config);
    for (std::size_t position = 0; output.size() < count;) {
      std::vector<float> hidden(input.size() * config.hidden_size);
      ranks.front()->embed(input, hidden);
      for (Rank* rank : ranks) rank->forward(hidden, position);
      position += input.size();
      output.push_back(ranks.back()->choose(hidden, sampling, {}, position).chosen.token);
      input = {output.back()};
    }
    return output;
  }

  [[nodiscard]] base::ByteCount free_memory() const {
    return cuda::memory_info(driver_, base::DeviceOrdinal(0)).free;
  }

  std::shared_ptr<const cuda::Driver> driver_;
  cuda::PrimaryContext context_;
};

// The tokens after a prompt whose keys and values another rank computed.
std::vector<TokenId> continue_from(Rank& from, Rank& to, const ModelConfig& config,
                                   const std::vector<TokenId>& prompt, std::size_t count) {
  std::vector<float> hidden(prompt.size() * config.hidden_size);
  from.embed(prompt, hidden);
  from.forward(hidden, 0);
  for (const KvRange& range : {KvRange{0, 3}, KvRange{3, prompt.size() - 3}}) {
    to.write_kv(range, from.read_kv(range));
  }
  std::vector<TokenId> output{from.choose(hidden, {}, {}, 0).chosen.token};
  for (std::size_t position = prompt.size(); output.size() < count; ++position) {
    hidden.resize(config.hidden_size);
    to.embed({{output.back()}}, hidden);
    to.forward(hidden, position);
    output.push_back(to.choose(hidden, {}, {}, 0).chosen.token);
  }
  return output;
}

TEST_F(RankTest, SaysWhatTheDefinitionSays) {
  const test::LoadedModel model = make(1);
  publish(model);
  Rank rank(options(model.config));
  begin(rank);
  const std::vector<TokenId> prompt = encode_text("Hello, rank", model.config);
  EXPECT_EQ(complete({&rank}, model.config, 8), test::reference_tokens(model, prompt, 8));
}

TEST_F(RankTest, CopiesInHostMemoryChangeNothing) {
  const test::LoadedModel model = make(1);
  publish(model);
  Rank direct(options(model.config));
  RankOptions with_copies = options(model.config);
  with_copies.host_copies = true;
  Rank copying(with_copies);
  begin(direct);
  begin(copying);
  const std::vector<TokenId> tokens = complete({&direct}, model.config, 20);
  EXPECT_EQ(complete({&copying}, model.config, 20), tokens);
  copying.free_kv();
  copying.unmap_weights();
  begin(copying);
  EXPECT_EQ(complete({&copying}, model.config, 20), tokens);
}

TEST_F(RankTest, AnotherRankContinuesFromItsKeysAndValues) {
  const test::LoadedModel model = make(1);
  publish(model);
  Rank first(options(model.config));
  RankOptions other = options(model.config);
  other.host_copies = true;
  other.kv_bytes *= 2;
  Rank second(other);
  begin(first);
  begin(second);
  EXPECT_EQ(first.fingerprint(), second.fingerprint());
  const std::vector<TokenId> prompt = encode_text("Hello, rank", model.config);
  const std::vector<TokenId> tokens = complete({&first}, model.config, 8);
  EXPECT_EQ(continue_from(first, second, model.config, prompt, 8), tokens);
  EXPECT_EQ(continue_from(second, first, model.config, prompt, 8), tokens);
  const std::uint64_t end = first.positions();
  EXPECT_EQ(status_of([&] { static_cast<void>(first.read_kv({end, 1})); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { static_cast<void>(first.read_kv({1, end})); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] {
              static_cast<void>(first.read_kv({~0ull, 2}));
            }),
            ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { first.write_kv({0, 1}, {}); }), ExitStatus::kProtocol);
}

TEST_F(RankTest, SeveralRanksAgreeWithOne) {
  const test::LoadedModel model = make(1);
  publish(model);
  Rank whole(options(model.config));
  begin(whole);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Rank*> pointers;
  for (std::uint32_t i = 0; i < 3; ++i) {
    RankOptions part = options(model.config);
    part.rank = i;
    part.ranks = 3;
    part.host_copies = i == 1;
    ranks.push_back(std::make_unique<Rank>(part));
    begin(*ranks.back());
    pointers.push_back(ranks.back().get());
  }
  const std::vector<TokenId> greedy = complete({&whole}, model.config, 20);
  EXPECT_EQ(complete(pointers, model.config, 20), greedy);
  const Sampling sampling{.temperature = 1.5, .seed = 11};
  const std::vector<TokenId> drawn = complete({&whole}, model.config, 20, sampling);
  EXPECT_NE(drawn, greedy);
  EXPECT_EQ(complete(pointers, model.config, 20, sampling), drawn);
}

TEST_F(RankTest, SleepGivesBackAllButTheWeights) {
  const test::LoadedModel model = make(1);
  publish(model);
  const base::ByteCount before = free_memory();
  Rank rank(options(model.config));
  begin(rank);
  EXPECT_TRUE(cuda::about(free_memory(), before - rank.kv_bytes()));
  EXPECT_GE(rank.gms_fd(), 0);
  const std::vector<TokenId> tokens = complete({&rank}, model.config, 8);
  rank.free_kv();
  rank.unmap_weights();
  EXPECT_TRUE(cuda::about(free_memory(), before));
  EXPECT_EQ(rank.gms_fd(), -1);
  rank.free_kv();  // repeating it is harmless: a sleep may interrupt a wake
  rank.unmap_weights();
  begin(rank);
  EXPECT_EQ(complete({&rank}, model.config, 8), tokens);
}

TEST_F(RankTest, NewWeightsInTheSameLayoutAreTheOnesThatCount) {
  const test::LoadedModel old_model = make(1);
  publish(old_model);
  for (const bool host_copies : {false, true}) {
    RankOptions wanted = options(old_model.config);
    wanted.host_copies = host_copies;
    publish(old_model);
    Rank rank(wanted);
    begin(rank);
    const std::vector<TokenId> tokens = complete({&rank}, old_model.config, 8);
    rank.free_kv();
    rank.unmap_weights();
    const test::LoadedModel new_model = make(host_copies ? 3 : 2);
    publish(new_model);
    begin(rank);
    EXPECT_NE(complete({&rank}, old_model.config, 8), tokens);
  }
}

TEST_F(RankTest, WakingFailsWithTheStatusThatSaysWhy) {
  const test::LoadedModel model = make(1);
  publish(model);
  Rank rank(options(model.config));
  begin(rank);
  rank.free_kv();
  rank.unmap_weights();
  {
    gms::MemoryManager writer(driver_, cuda::device_info(*driver_, base::DeviceOrdinal(0)),
                              socket_);
    ASSERT_EQ(writer.connect(gms::LockType::kRw, gms::soon()), gms::Grant::kRw);
    EXPECT_EQ(status_of([&] { rank.map_weights(); }), ExitStatus::kTryAgain);
  }
  publish(make(1, 64));
  EXPECT_EQ(status_of([&] { rank.map_weights(); }), ExitStatus::kBadData);
  publish(model);
  EXPECT_EQ(status_of([&] { rank.map_weights(); }), ExitStatus::kOk);
  rank.unmap_weights();
  server_.reset();
  EXPECT_EQ(status_of([&] { rank.map_weights(); }), ExitStatus::kUnavailable);
}

}  // namespace
}  // namespace fo::refengine
