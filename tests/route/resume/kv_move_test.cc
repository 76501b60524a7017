#include "route/resume/kv_move.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/failure.h"

namespace fo::test {
namespace {

using route::KvMoveSettings;
using route::KvOffer;
using std::chrono::milliseconds;

constexpr base::ByteCount kTokenBytes = 320 * base::kKiB;

KvOffer offer_of(std::size_t tokens) {
  return {.tokens = std::vector<route::TokenId>(tokens, 7), .bytes = tokens * kTokenBytes};
}

class KvMove : public ::testing::Test {
 protected:
  std::string reason(std::size_t tokens, const KvMoveSettings& settings = {}) {
    return route::reason_for_replay(migration_of(offer_of(tokens), target_, settings), tokens);
  }
  route::Worker target_{"t", fleet::Health{}};
};

TEST_F(KvMove, AShortSequenceIsComputedAndALongOneTransferred) {
  // Without a measurement: 20 ms and 0.3 ms for a token against 0.2 ms for a token.
  EXPECT_EQ(reason(100), "100 tokens take 20 ms, and their transfer would take 50.5 ms");
  KvMoveSettings fast{.bandwidth = 10 * base::kGiB};
  EXPECT_NE(reason(100, fast), "");
  EXPECT_EQ(reason(200, fast), "");
  const auto crossover =
      plan::crossover_tokens(migration_of(offer_of(1), target_, fast)).value_or(0);
  EXPECT_NE(reason(static_cast<std::size_t>(crossover), fast), "");
  EXPECT_EQ(reason(static_cast<std::size_t>(crossover) + 1, fast), "");
}

TEST_F(KvMove, ASlowLinkOrAFastWorkerComputesAtEveryLength) {
  for (const std::size_t tokens : {1U, 1000U, 100'000U}) {
    EXPECT_NE(reason(tokens, {.bandwidth = base::kMiB}), "");
    EXPECT_NE(reason(tokens, {.prefill = 1'000'000'000}), "");
  }
}

TEST_F(KvMove, RatesAreMeasuredUnlessTheyAreGiven) {
  add_prefill(target_, 1000, milliseconds(500));
  add_transfer(target_, 1000 * base::kMiB, milliseconds(520));
  const plan::Migration measured = migration_of(offer_of(1), target_, {});
  EXPECT_DOUBLE_EQ(measured.prefill_rate, 2000);
  EXPECT_DOUBLE_EQ(measured.bandwidth, 2000 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(measured.bytes_per_token, kTokenBytes);
  const plan::Migration given =
      migration_of(offer_of(1), target_, {.bandwidth = base::kGiB, .prefill = 10});
  EXPECT_DOUBLE_EQ(given.prefill_rate, 10);
  EXPECT_DOUBLE_EQ(given.bandwidth, 1024.0 * 1024 * 1024);
}

TEST_F(KvMove, AShortPromptMeasuresNothing) {
  add_prefill(target_, 255, milliseconds(1));
  EXPECT_DOUBLE_EQ(migration_of(offer_of(1), target_, {}).prefill_rate, route::kDefaultPrefill);
  // A transfer that takes no time at all has a rate nevertheless.
  add_transfer(target_, base::kGiB, milliseconds(1));
  EXPECT_EQ(reason(200), "");
}

TEST_F(KvMove, LaterWorkWeighsMore) {
  add_prefill(target_, 1000, milliseconds(1000));
  add_prefill(target_, 1000, milliseconds(100));
  const double rate = migration_of(offer_of(1), target_, {}).prefill_rate;
  EXPECT_GT(rate, 2000 / 1.1);
  EXPECT_LT(rate, 10'000);
}

TEST_F(KvMove, TheOfferOfAnEngineIsRead) {
  const KvOffer offer = route::read_kv_offer(
      R"({"format":"fo-kv-1","model":"m","tokens":[256,72],"bytes":64,"blocks":1})");
  EXPECT_EQ(offer.tokens, (std::vector<route::TokenId>{256, 72}));
  EXPECT_EQ(offer.bytes, 64U);
  for (const char* const text :
       {"", "[]", "{}", R"({"tokens":[],"bytes":1})", R"({"tokens":[1],"bytes":0})",
        R"({"tokens":[1],"bytes":"64"})", R"({"tokens":["1"],"bytes":64})",
        R"({"tokens":[1],"bytes":-1})", R"({"tokens":7,"bytes":64})"}) {
    EXPECT_EQ(status_of([&] { route::read_kv_offer(text); }), base::ExitStatus::kProtocol) << text;
  }
}

TEST_F(KvMove, TheAnswerToAPullIsRead) {
  const route::KvSnapshot snapshot =
      route::read_kv_snapshot(R"({"snapshot":"a\"b","tokens":2,"bytes":64})");
  EXPECT_EQ(snapshot.id, "a\"b");
  EXPECT_EQ(snapshot.tokens, 2U);
  const std::string long_id(257, 'x');
  for (const std::string& text :
       {std::string("{}"), std::string(R"({"snapshot":"","tokens":2,"bytes":64})"),
        R"({"tokens":2,"bytes":64,"snapshot":")" + long_id + "\"}",
        std::string(R"({"snapshot":7,"tokens":2,"bytes":64})")}) {
    EXPECT_EQ(status_of([&] { route::read_kv_snapshot(text); }), base::ExitStatus::kProtocol)
        << text;
  }
}

TEST_F(KvMove, TheTokensOfAnotherRequestAreNotTheSame) {
  EXPECT_TRUE(route::is_same_sequence({1, 2}, {1, 2, 3}));
  EXPECT_TRUE(route::is_same_sequence({1, 2, 3}, {1, 2}));
  EXPECT_FALSE(route::is_same_sequence({1, 3}, {1, 2, 3}));
}

TEST_F(KvMove, OnlyAPlainAddressIsASource) {
  const auto source = [this](const std::string& url) {
    target_.set_url(url, net::parse_url(url), net::TlsFiles{});
    return kv_source_of(target_);
  };
  EXPECT_EQ(source("http://127.0.0.1:8001"), "http://127.0.0.1:8001");
  EXPECT_EQ(source("http://[::1]:8001/"), "http://[::1]:8001");
  EXPECT_EQ(source("http://127.0.0.1:8001/llama"), std::nullopt);
  EXPECT_EQ(source("https://127.0.0.1:8001"), std::nullopt);
}

}  // namespace
}  // namespace fo::test
