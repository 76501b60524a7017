#include "plan/figures.h"

#include <algorithm>
#include <array>
#include <utility>

#include "plan/canary.h"
#include "plan/digits.h"
#include "plan/failures.h"
#include "plan/migration.h"

namespace fo::plan {
namespace {

struct Value {
  double claimed;
  double computed;
  int digits;
};

bool is_equal(const Value& value) {
  return to_digits(value.claimed, value.digits) == to_digits(value.computed, value.digits);
}

// `text` with the computed values in place of its "{}".
std::string fill(std::string text, const std::vector<Value>& values) {
  std::size_t at = 0;
  for (const Value& value : values) {
    at = text.find("{}", at);
    const std::string digits = to_digits(value.computed, value.digits);
    text.replace(at, 2, digits);
    at += digits.size();
  }
  return text;
}

Figure figure(std::string claim, const std::vector<Value>& values, std::string text,
              std::string reason) {
  return {.claim = std::move(claim),
          .is_right = std::all_of(values.begin(), values.end(), is_equal),
          .value = fill(std::move(text), values),
          .reason = std::move(reason)};
}

// The cluster, the model and the links of the article.
constexpr double kAfr = 0.03;
constexpr std::uint64_t kTp = 8;
constexpr KvShape kLlama70b{.layers = 80, .kv_heads = 8, .head_size = 128, .element_bytes = 2};
constexpr KvShape kLlama70bPart{.layers = 80, .kv_heads = 1, .head_size = 128, .element_bytes = 2};
constexpr double kBlockTokens = 16;
constexpr double kNvLink = 900e9;
constexpr double kPcie = 28e9;
constexpr CanaryChecks kChecks{.interval = Seconds(30), .false_result = 0.001, .in_a_row = 3};
constexpr double kSequence = 2048;
constexpr std::uint64_t kInFlight = 23;

Migration migration_over(double bandwidth) {
  return {.setup = Seconds(0),
          .bytes_per_token = kv_bytes_per_token(kLlama70bPart),
          .bandwidth = bandwidth,
          .prefill_rate = 5000};
}

double milliseconds(Seconds time) { return time.count() * 1000; }

// The table of transfer times in milliseconds: 256 to 131,072 tokens.
struct Column {
  std::array<double, 6> claimed;
  std::array<int, 6> digits;
};

Figure transfers(const char* claim, const Column& column, double bandwidth, const char* reason) {
  constexpr std::array<double, 6> kTokens{256, 1024, 4096, 16384, 65536, 131072};
  std::vector<Value> values;
  for (std::size_t i = 0; i < kTokens.size(); ++i) {
    const Seconds time = transfer_time(migration_over(bandwidth), kTokens[i]);
    values.push_back({column.claimed[i], milliseconds(time), column.digits[i]});
  }
  return figure(claim, values, "{}, {}, {}, {}, {} and {} ms", reason);
}

void add_failures(std::vector<Figure>& figures) {
  const Hours mtbf = time_between_failures(1024, kAfr);
  figures.push_back(figure("1,024 GPUs that fail 0.03 times a year fail every 285 h, or 11.9 days",
                           {{285, mtbf.count(), 3}, {11.9, Days(mtbf).count(), 3}}, "{} h, {} days",
                           "MTBF = 8760 h / (gpus * afr)"));
  figures.push_back(figure("a GPU fails on a given day with a chance of 8.2e-5",
                           {{8.2e-5, gpu_failure_chance_per_day(kAfr), 2}}, "{}", "afr / 365"));
  figures.push_back(figure("a group of 8 GPUs fails on a given day with a chance of 6.6e-4",
                           {{6.6e-4, group_failure_chance_per_day(kTp, kAfr), 2}}, "{}",
                           "1 - (1 - afr/365)^tp"));
  figures.push_back(
      figure("0.084, 0.82 and 8.2 groups fail per day of 1,024, 10,000 and 100,000 GPUs",
             {{0.084, group_failures_per_day(1024, kTp, kAfr), 2},
              {0.82, group_failures_per_day(10'000, kTp, kAfr), 2},
              {8.2, group_failures_per_day(100'000, kTp, kAfr), 2}},
             "{}, {} and {} a day", "gpus/tp * (1 - (1 - afr/365)^tp)"));
}

void add_sizes_and_shares(std::vector<Figure>& figures) {
  figures.push_back(figure("a block of 16 tokens has 5.24 MB, and 655,360 bytes on each of 8 GPUs",
                           {{5.24, kBlockTokens * kv_bytes_per_token(kLlama70b) / 1e6, 3},
                            {655'360, kBlockTokens * kv_bytes_per_token(kLlama70bPart), 6}},
                           "{} MB, {} bytes",
                           "tokens * 2 * layers * kv_heads * head_size * element_bytes"));
  const double share = chance_to_see(Seconds(0.002), kChecks.interval);
  figures.push_back(figure("a check of 2 ms every 30 s takes 0.007 % of the GPU's time",
                           {{0.007, share * 100, 1}}, "{} %", "duration / interval"));
  figures.push_back(figure("one of 16 groups lost leaves 93.75 % of the capacity",
                           {{93.75, 15.0 / 16 * 100, 4}}, "{} %", "remaining / all groups"));
  const auto replay = [](double tokens) {
    return milliseconds(replay_time(migration_over(kNvLink), tokens));
  };
  figures.push_back(figure(
      "replay of 256, 4,096 and 16,384 tokens at 5,000 tokens/s takes 51.2, 819 and 3,277 ms",
      {{51.2, replay(256), 3}, {819, replay(4096), 3}, {3277, replay(16384), 4}},
      "{}, {} and {} ms", "tokens / prefill rate"));
}

void add_wrong_failures(std::vector<Figure>& figures) {
  figures.push_back(figure("1,000 GPUs: a failure a day",
                           {{1, Days(time_between_failures(1000, 0.05)).count(), 2},
                            {1, Days(time_between_failures(1000, 0.02)).count(), 3}},
                           "one every {} to {} days at 5 to 2 % a year",
                           "the article's own formula, 8760 h / (gpus * afr), gives days"));
  figures.push_back(figure("10,000 GPUs: several failures a day",
                           {{2, Days(1) / time_between_failures(10'000, 0.02), 2},
                            {2, Days(1) / time_between_failures(10'000, 0.05), 3}},
                           "{} to {} a day at 2 to 5 % a year",
                           "the same formula; several would be two or more"));
  constexpr double kFlops = 1e13;
  constexpr Seconds k115Days = Days(115);
  const Seconds between(1 / (1e-15 * kFlops));
  figures.push_back(
      figure("1e-15 errors per FLOP at 1e13 FLOP/s are one in 115 days, in 1,000 GPUs one in 2.7 h",
             {{k115Days.count(), between.count(), 3},
              {2.7 * 3600, between.count() / 1000, 1},
              {1e-15, 1 / (kFlops * k115Days.count()), 2}},
             "one in {} s, in 1,000 GPUs one in {} s; one in 115 days is {} errors per FLOP",
             "time = 1 / (errors per FLOP * FLOP/s); the second figure is derived from the first"));
}

void add_wrong_transfers(std::vector<Figure>& figures) {
  figures.push_back(transfers(
      "NVLink at 900 GB/s transfers 256 to 131,072 tokens in 0.006, 0.022, 0.089, 0.356, 1.42 and "
      "2.84 ms",
      {{0.006, 0.022, 0.089, 0.356, 1.42, 2.84}, {3, 2, 3, 3, 3, 3}}, kNvLink,
      "the article divides by 1,800 GB/s, and takes MiB for MB"));
  figures.push_back(
      transfers("PCIe at 28 GB/s transfers them in 0.36, 1.43, 5.71, 22.86, 91.43 and 182.86 ms",
                {{0.36, 1.43, 5.71, 22.86, 91.43, 182.86}, {3, 3, 3, 4, 4, 4}}, kPcie,
                "the article takes MiB for MB"));
  const auto faster = [](double bandwidth) {
    const Migration migration = migration_over(bandwidth);
    return replay_time(migration, 1) / transfer_time(migration, 1);
  };
  // At the crossover one is as fast as the other.
  figures.push_back(figure(
      "replay is faster from 5.4e6 tokens on over NVLink, from 168,000 on over PCIe",
      {{1, faster(kNvLink), 4}, {1, faster(kPcie), 3}},
      "at no length: transfer is {} and {} times faster at every length",
      "both times are proportional to the length; with a set-up time, replay is faster for short "
      "sequences"));
  figures.push_back(
      figure("PCIe Gen5 x16 has 28 GB/s", {{28, pcie_bandwidth(32e9, 16) / 1e9, 2}},
             "{} GB/s in each direction",
             "transfers/s * lanes * 128/130 / 8; 28 GB/s is what Gen4 reaches of its " +
                 to_digits(pcie_bandwidth(16e9, 16) / 1e9, 3)));
  figures.push_back(figure("a sequence of 2,048 tokens has 320 KB in the KV cache",
                           {{0.32, kSequence * kv_bytes_per_token(kLlama70b) / 1e6, 3},
                            {0.32, kv_bytes_per_token(kLlama70b) / 1024, 3}},
                           "{} MB; one token has {} KiB",
                           "the bytes of a token were taken for those of a sequence"));
}

void add_wrong_canaries(std::vector<Figure>& figures) {
  const double minute = Seconds(60) / kChecks.interval;
  const Seconds last = static_cast<double>(kChecks.in_a_row) * kChecks.interval;
  const Seconds first = last - kChecks.interval;
  const double in_a_row = false_drains_per_day(kChecks) / checks_per_day(kChecks.interval);
  figures.push_back(figure("a check every 30 s is 33 checks a minute", {{33, minute, 1}},
                           "{} a minute", "60 s / interval"));
  figures.push_back(figure(
      "a false-positive rate of 0.1 % is a false drain in 1,000 checks",
      {{1e-3, in_a_row, 1}, {1000, checks_until_unreset_breaker_opens(kChecks), 1}},
      "{} drains per check if failures are independent; the article's breaker, which successes do "
      "not reset, opens after {} checks",
      "a drain needs three failures in a row, p^3 per check; the breaker counts three in all, 3/p "
      "checks"));
  figures.push_back(
      figure("silent corruption is found within 30 s",
             {{30, first.count(), 2},
              {30, last.count(), 2},
              {1, chance_to_see(Seconds(0.002), kChecks.interval), 2}},
             "{} to {} s for a lasting fault; a check meets a fault of 2 ms with a chance of {}",
             "three failures in a row remove a worker; the chance is duration / interval"));
  figures.push_back(figure("a crash is detected in 0 to 1 ms",
                           {{0.001, first.count(), 2}, {0.001, last.count(), 2}},
                           "{} to {} s, and the timeouts",
                           "the article's daemon polls every 30 s and acts on the third failure"));
}

void add_wrong_recovery(std::vector<Figure>& figures) {
  const Migration migration = migration_over(kNvLink);
  figures.push_back(
      figure("KV transfer from the failed group recovers all requests in 3 to 11 ms",
             {{0.011, replay_time(migration, kSequence).count(), 2},
              {0.011, last_replay(migration, kSequence, kInFlight, 1).count(), 2},
              {0.011, last_replay(migration, kSequence, kInFlight, 15).count(), 1}},
             "replay in {} s for 2,048 tokens, {} s for the last of 23 on one group, {} s over 15",
             "the dead GPU held 1/8 of every KV block, so that nothing can be transferred"));
  // From the article's timeline of a failure.
  constexpr Seconds kSpareOnline(60);
  figures.push_back(figure("a hot spare replaces a failed GPU within 1 s",
                           {{1, kSpareOnline.count(), 2}}, "{} s",
                           "the article's own timeline brings the spare online at t0 + 60 s"));
}

}  // namespace

std::vector<Figure> figures_of_seed_002() {
  std::vector<Figure> figures;
  add_failures(figures);
  add_sizes_and_shares(figures);
  add_wrong_failures(figures);
  add_wrong_transfers(figures);
  add_wrong_canaries(figures);
  add_wrong_recovery(figures);
  return figures;
}

}  // namespace fo::plan
