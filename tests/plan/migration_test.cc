#include "plan/migration.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/failure.h"

namespace fo::plan {
namespace {

using test::failure_of;

// Llama 70B on 8 GPUs.
constexpr KvShape kWhole{.layers = 80, .kv_heads = 8, .head_size = 128, .element_bytes = 2};
constexpr KvShape kPart{.layers = 80, .kv_heads = 1, .head_size = 128, .element_bytes = 2};

Migration over(double bandwidth, Seconds setup = Seconds(0)) {
  return {.setup = setup,
          .bytes_per_token = kv_bytes_per_token(kPart),
          .bandwidth = bandwidth,
          .prefill_rate = 5000};
}

TEST(Migration, BytesOfAToken) {
  EXPECT_EQ(kv_bytes_per_token(kWhole), 327'680);
  EXPECT_EQ(16 * kv_bytes_per_token(kWhole), 5'242'880);
  EXPECT_EQ(16 * kv_bytes_per_token(kPart), 655'360);
  EXPECT_EQ(failure_of([] {
              kv_bytes_per_token({0, 1, 1, 1});
            }).message,
            "layers '0': expected 1 to 1000000");
}

TEST(Migration, BandwidthOfPcie) {
  EXPECT_NEAR(pcie_bandwidth(32e9, 16), 63.0e9, 0.05e9);
  EXPECT_NEAR(pcie_bandwidth(16e9, 16), 31.5e9, 0.05e9);
}

TEST(Migration, TimesOfTheSeed) {
  EXPECT_NEAR(transfer_time(over(900e9), 131'072).count(), 5.965e-3, 1e-6);
  EXPECT_NEAR(transfer_time(over(28e9), 131'072).count(), 0.19174, 1e-5);
  EXPECT_NEAR(replay_time(over(900e9), 2048).count(), 0.4096, 1e-12);
  EXPECT_NEAR(last_replay(over(900e9), 2048, 23, 1).count(), 9.4208, 1e-9);
  EXPECT_NEAR(last_replay(over(900e9), 2048, 23, 15).count(), 0.8192, 1e-9);
  EXPECT_NEAR(last_transfer(over(28e9), 2048, 23).count(), 23 * 2048 * 40960 / 28e9, 1e-12);
}

TEST(Migration, WithoutASetUpTimeThereIsNoCrossover) {
  for (const double bandwidth : {1e6, 28e9, 900e9}) {
    const Migration migration = over(bandwidth);
    EXPECT_EQ(crossover_tokens(migration), std::nullopt);
    const bool is_replay_faster = replay_time(migration, 1) < transfer_time(migration, 1);
    for (double tokens = 1; tokens < 1e9; tokens *= 10) {
      EXPECT_EQ(replay_time(migration, tokens) < transfer_time(migration, tokens),
                is_replay_faster);
    }
  }
}

TEST(Migration, WithASetUpTimeReplayIsFasterForShortSequences) {
  for (const double setup : {0.001, 0.1, 5.0}) {
    const Migration migration = over(28e9, Seconds(setup));
    const double tokens = crossover_tokens(migration).value();
    EXPECT_NEAR(transfer_time(migration, tokens) / replay_time(migration, tokens), 1, 1e-9);
    EXPECT_LT(replay_time(migration, tokens * 0.99), transfer_time(migration, tokens * 0.99));
    EXPECT_GT(replay_time(migration, tokens * 1.01), transfer_time(migration, tokens * 1.01));
  }
  EXPECT_LT(crossover_tokens(over(28e9, Seconds(0.1))), crossover_tokens(over(28e9, Seconds(0.2))));
  EXPECT_GT(crossover_tokens(over(28e9, Seconds(0.1))),
            crossover_tokens(over(900e9, Seconds(0.1))));
}

TEST(Migration, OverASlowLinkReplayIsFasterAtEveryLength) {
  const Migration migration = over(40960 * 5000.0 / 2, Seconds(0.1));
  EXPECT_EQ(crossover_tokens(migration), std::nullopt);
  EXPECT_LT(replay_time(migration, 1e9), transfer_time(migration, 1e9));
}

TEST(Migration, TimesGrowWithTokensAndRequestsAndFallWithTargets) {
  const Migration migration = over(28e9, Seconds(0.01));
  for (std::uint64_t n = 1; n < 50; ++n) {
    const auto tokens = static_cast<double>(n);
    EXPECT_LT(transfer_time(migration, tokens), transfer_time(migration, tokens + 1));
    EXPECT_LT(replay_time(migration, tokens), replay_time(migration, tokens + 1));
    EXPECT_LE(last_replay(migration, 100, n, 3), last_replay(migration, 100, n + 1, 3));
    EXPECT_GE(last_replay(migration, 100, 50, n), last_replay(migration, 100, 50, n + 1));
    EXPECT_LT(last_transfer(migration, 100, n), last_transfer(migration, 100, n + 1));
  }
  // More targets than requests do not help.
  EXPECT_EQ(last_replay(migration, 100, 5, 5), last_replay(migration, 100, 5, 500));
}

TEST(Migration, RefusesArgumentsOutOfRange) {
  const auto with = [](auto change) {
    return [change] {
      Migration migration = over(28e9);
      change(migration);
      transfer_time(migration, 100);
    };
  };
  const std::vector<std::function<void()>> wrong{
      with([](Migration& one) { one.setup = Seconds(-1); }),
      with([](Migration& one) { one.bandwidth = 0; }),
      with([](Migration& one) { one.prefill_rate = 0; }),
      with([](Migration& one) { one.bytes_per_token = 1e300; }),
      [] { replay_time(over(28e9), 0); },
      [] { last_replay(over(28e9), 1, 0, 1); },
      [] { last_replay(over(28e9), 1, 1, 0); },
      [] { last_transfer(over(28e9), 1, 0); }};
  for (const auto& call : wrong) {
    EXPECT_EQ(failure_of(call).status, base::ExitStatus::kUsage) << &call - wrong.data();
  }
}

}  // namespace
}  // namespace fo::plan
