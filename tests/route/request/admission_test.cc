#include "route/request/admission.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "fleet/card/digest.h"

namespace fo::test {
namespace {

using route::Admission;
using route::AdmissionAnswer;
using route::KeyRule;
using route::KeyRules;
using route::TokenBucket;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr base::Duration kOpened = seconds(1000);

KeyRules rules_of(const std::string& key, const KeyRule& rule) {
  return {{fleet::sha256_hex(key), rule}};
}

AdmissionAnswer answer_of(Admission& admission, std::optional<std::string_view> key,
                          std::uint64_t tokens = 1, base::Duration now = kOpened) {
  return admission.admit(key, "llama", tokens, now).answer;
}

TEST(TokenBucket, RefillsInAMinute) {
  TokenBucket bucket(60);
  EXPECT_EQ(bucket.wait_for(60, kOpened), base::Duration(0));
  bucket.remove(60, kOpened);
  EXPECT_EQ(bucket.wait_for(1, kOpened), seconds(1));
  EXPECT_EQ(bucket.wait_for(60, kOpened + seconds(15)), seconds(45));
  EXPECT_EQ(bucket.wait_for(1, kOpened + seconds(1)), base::Duration(0));
  // It is full after a minute, and does not become fuller.
  bucket.remove(60, kOpened + minutes(10));
  EXPECT_EQ(bucket.wait_for(1, kOpened + minutes(10)), seconds(1));
}

TEST(TokenBucket, AnAmountThatIsTooLargeNeedsAFullBucket) {
  TokenBucket bucket(60);
  EXPECT_EQ(bucket.wait_for(1000, kOpened), base::Duration(0));
  bucket.remove(120, kOpened);
  EXPECT_EQ(bucket.wait_for(1000, kOpened), minutes(2));
  EXPECT_EQ(bucket.wait_for(1000, kOpened + minutes(2)), base::Duration(0));
  EXPECT_GT(TokenBucket(0).wait_for(1, kOpened), base::Duration(0));
}

TEST(TokenBucket, ANewRateKeepsWhatWasUsed) {
  TokenBucket bucket(60);
  bucket.remove(30, kOpened);
  bucket.set_rate(120, kOpened);
  EXPECT_EQ(bucket.wait_for(90, kOpened), base::Duration(0));
  EXPECT_GT(bucket.wait_for(91, kOpened), base::Duration(0));
}

TEST(TokenBucket, ALowerRateDoesNotLockOut) {
  TokenBucket bucket(1'000'000);
  bucket.remove(900'000, kOpened);
  bucket.set_rate(100, kOpened);
  EXPECT_EQ(bucket.wait_for(100, kOpened), minutes(1));
  // What was used beyond the rate is not forgiven.
  bucket.remove(200, kOpened);
  bucket.set_rate(100, kOpened);
  EXPECT_EQ(bucket.wait_for(100, kOpened), minutes(3));
  bucket.set_rate(10, kOpened);
  EXPECT_EQ(bucket.wait_for(10, kOpened), minutes(3));
}

TEST(TokenBucket, NeverPermitsMoreThanItsRate) {
  std::mt19937 random(1);
  TokenBucket bucket(600);
  base::Duration now = kOpened;
  std::uint64_t removed = 0;
  for (int i = 0; i < 10'000; ++i) {
    now += milliseconds(random() % 200);
    const std::uint64_t amount = random() % 10;
    const base::Duration wait = bucket.wait_for(amount, now);
    ASSERT_EQ(bucket.wait_for(amount, now + wait), base::Duration(0));
    if (wait > base::Duration(0)) continue;
    bucket.remove(amount, now);
    removed += amount;
    const double elapsed = std::chrono::duration<double>(now - kOpened).count() / 60;
    ASSERT_LE(static_cast<double>(removed), 600 * (1 + elapsed) + 1e-6);
  }
}

TEST(Admission, WithoutRulesEverybodyIsPremium) {
  Admission admission(std::nullopt);
  for (const std::optional<std::string_view> key : {std::optional<std::string_view>("k"), {}}) {
    const Admission::Admitted admitted = admission.admit(key, "llama", 1'000'000, kOpened);
    EXPECT_EQ(admitted.answer, AdmissionAnswer::kAdmitted);
    EXPECT_EQ(admitted.tier, plan::kPremium);
    EXPECT_EQ(admitted.key, "");
    ASSERT_NE(admission.find_rule(key), nullptr);
    EXPECT_TRUE(admission.find_rule(key)->permits("llama"));
  }
}

TEST(Admission, WithRulesAKeyIsRequired) {
  Admission admission(rules_of("secret", {}));
  EXPECT_EQ(answer_of(admission, std::nullopt), AdmissionAnswer::kUnknownKey);
  EXPECT_EQ(answer_of(admission, "other"), AdmissionAnswer::kUnknownKey);
  EXPECT_EQ(answer_of(admission, fleet::sha256_hex("secret")), AdmissionAnswer::kUnknownKey);
  const Admission::Admitted admitted = admission.admit("secret", "llama", 1, kOpened);
  EXPECT_EQ(admitted.answer, AdmissionAnswer::kAdmitted);
  EXPECT_EQ(admitted.tier, plan::kStandard);
  EXPECT_EQ(admission.find_rule("other"), nullptr);
  EXPECT_EQ(admission.find_rule(std::nullopt), nullptr);
  // An empty file of keys permits nobody.
  Admission empty{KeyRules{}};
  EXPECT_EQ(answer_of(empty, "secret"), AdmissionAnswer::kUnknownKey);
}

TEST(Admission, AKeyMayBeForSomeModels) {
  Admission admission(rules_of("k", {.models = {"llama", "qwen"}}));
  EXPECT_EQ(admission.admit("k", "qwen", 1, kOpened).answer, AdmissionAnswer::kAdmitted);
  EXPECT_EQ(admission.admit("k", "other", 1, kOpened).answer, AdmissionAnswer::kNoModel);
}

TEST(Admission, LimitsRequestsOfAMinute) {
  Admission admission(rules_of("k", {.requests_per_minute = 2}));
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  const Admission::Admitted refused = admission.admit("k", "llama", 1, kOpened);
  EXPECT_EQ(refused.answer, AdmissionAnswer::kRequests);
  EXPECT_EQ(refused.retry_after, seconds(30));
  EXPECT_EQ(answer_of(admission, "k", 1, kOpened + seconds(30)), AdmissionAnswer::kAdmitted);
}

TEST(Admission, LimitsTokensOfAMinuteByThoseThatWereNeeded) {
  Admission admission(rules_of("k", {.requests_per_minute = 100, .tokens_per_minute = 1000}));
  const Admission::Admitted first = admission.admit("k", "llama", 900, kOpened);
  EXPECT_EQ(first.answer, AdmissionAnswer::kAdmitted);
  EXPECT_EQ(answer_of(admission, "k", 200), AdmissionAnswer::kTokens);
  admission.end(first.key, 900, 100, kOpened);
  const Admission::Admitted second = admission.admit("k", "llama", 900, kOpened);
  EXPECT_EQ(second.answer, AdmissionAnswer::kAdmitted);
  // An answer that is longer than expected is a debt.
  admission.end(second.key, 900, 1900, kOpened);
  const Admission::Admitted third = admission.admit("k", "llama", 1, kOpened);
  EXPECT_EQ(third.answer, AdmissionAnswer::kTokens);
  EXPECT_EQ(third.retry_after, milliseconds(60'060));
}

TEST(Admission, TokensThatWereNotNeededAreReturnedToABucketThatHasFilledSince) {
  Admission admission(rules_of("k", {.tokens_per_minute = 1000}));
  const Admission::Admitted first = admission.admit("k", "llama", 900, kOpened);
  const base::Duration later = kOpened + seconds(60);
  admission.end(first.key, 900, 500, later);
  EXPECT_EQ(answer_of(admission, "k", 1000, later), AdmissionAnswer::kAdmitted);
}

TEST(Admission, ARefusedRequestCountsNowhere) {
  Admission admission(rules_of("k", {.requests_per_minute = 2, .tokens_per_minute = 100}));
  EXPECT_EQ(answer_of(admission, "k", 60), AdmissionAnswer::kAdmitted);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(answer_of(admission, "k", 60), AdmissionAnswer::kTokens);
  EXPECT_EQ(answer_of(admission, "k", 40), AdmissionAnswer::kAdmitted);
}

TEST(Admission, LimitsRequestsAtATime) {
  Admission admission(rules_of("k", {.requests_at_a_time = 1}));
  const Admission::Admitted first = admission.admit("k", "llama", 1, kOpened);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kConcurrency);
  EXPECT_EQ(admission.admit("k", "llama", 1, kOpened).retry_after, seconds(1));
  admission.end(first.key, 1, 1, kOpened);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
}

TEST(Admission, NewRulesKeepTheUseOfAKey) {
  Admission admission(rules_of("k", {.requests_per_minute = 2, .requests_at_a_time = 5}));
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  admission.set_rules(
      rules_of("k", {.tier = plan::kBestEffort, .requests_per_minute = 3, .requests_at_a_time = 3}),
      kOpened);
  EXPECT_EQ(admission.find_rule("k")->tier, plan::kBestEffort);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  EXPECT_EQ(answer_of(admission, "k", 1, kOpened + minutes(10)), AdmissionAnswer::kConcurrency);
  admission.set_rules(rules_of("k", {}), kOpened);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kAdmitted);
  admission.set_rules(rules_of("other", {}), kOpened);
  EXPECT_EQ(answer_of(admission, "k"), AdmissionAnswer::kUnknownKey);
  // A request that ends after its key is ignored.
  admission.end(fleet::sha256_hex("k"), 1, 1, kOpened);
}

}  // namespace
}  // namespace fo::test
