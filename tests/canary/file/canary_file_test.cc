#include "canary/file/canary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"

namespace fo::canary {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

Canary rivers() {
  return {.name = "rivers",
          .text = "Ça coule",
          .prompt = {1, 4294967295},
          .max_tokens = 8,
          .answer = {{.token = 7, .logprob = -0.1, .top = {{" the", -0.1}, {" a", -2.4}}},
                     {.token = 0, .logprob = -1e-300}},
          .spread = 0.004,
          .time = milliseconds(250)};
}

CanaryFile file_with(std::vector<Canary> canaries) {
  return {
      .model = "llama", .card = "sha256:00", .has_sampler = true, .canaries = std::move(canaries)};
}

// The reason for which this text is refused; empty if it is not.
std::string file_refusal(const std::string& text) {
  try {
    static_cast<void>(parse_canaries(text, "/c"));
  } catch (const base::Error& error) {
    EXPECT_EQ(error.status(), base::ExitStatus::kBadData);
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with("read '/c': ")) << what;
    return what.substr(std::string("read '/c': ").size());
  }
  return {};
}

// The reason for which a file is refused that has `to` in place of `from`.
std::string file_refusal_with(const std::string& from, const std::string& to) {
  std::string text = encode(file_with({rivers()}));
  const std::size_t at = text.find(from);
  if (at == text.npos) return "the file has no " + from;
  return file_refusal(text.replace(at, from.size(), to));
}

TEST(CanaryFile, IsReadAsItWasWritten) {
  const CanaryFile file = parse_canaries(encode(file_with({rivers()})), "/c");
  EXPECT_EQ(file.model, "llama");
  EXPECT_EQ(file.card, "sha256:00");
  EXPECT_TRUE(file.has_sampler);
  ASSERT_EQ(file.canaries.size(), 1U);
  const Canary& canary = file.canaries.front();
  EXPECT_EQ(canary.name, "rivers");
  EXPECT_EQ(canary.text, "Ça coule");
  EXPECT_THAT(canary.prompt, ElementsAre(1U, 4294967295U));
  EXPECT_EQ(canary.max_tokens, 8U);
  ASSERT_EQ(canary.answer.size(), 2U);
  EXPECT_EQ(canary.answer[0].token, 7U);
  EXPECT_EQ(canary.answer[0].logprob, -0.1);
  EXPECT_EQ(canary.answer[0].top.at(" a"), -2.4);
  EXPECT_EQ(canary.answer[1].logprob, -1e-300);
  EXPECT_EQ(canary.spread, 0.004);
  EXPECT_EQ(canary.time, milliseconds(250));
}

TEST(CanaryFile, ATimeIsReadToTheNanosecond) {
  // Times 1e9, its seconds are a little less than this.
  constexpr std::chrono::nanoseconds kTime(127'614'242);
  Canary canary = rivers();
  canary.time = kTime;
  EXPECT_EQ(parse_canaries(encode(file_with({canary})), "/c").canaries.at(0).time, kTime);
}

TEST(CanaryFile, EachTruncationIsRefused) {
  const std::string whole = encode(file_with({rivers()}));
  ASSERT_EQ(file_refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(file_refusal(whole.substr(0, size)), "not JSON") << size;
  }
}

TEST(CanaryFile, HasOneToAThousandCanariesWithDifferentNames) {
  EXPECT_EQ(file_refusal(encode(file_with({}))), "canaries is not a list of 1 to 1024");
  EXPECT_EQ(file_refusal(encode(file_with({rivers(), rivers()}))), "canary 'rivers' appears twice");
  std::vector<Canary> many;
  for (std::size_t i = 0; i < kMaxCanaries; ++i) {
    many.push_back(rivers());
    many.back().name = std::to_string(i);
  }
  EXPECT_EQ(file_refusal(encode(file_with(many))), "");
  many.push_back(rivers());
  EXPECT_EQ(file_refusal(encode(file_with(many))), "canaries is not a list of 1 to 1024");
}

TEST(CanaryFile, AnotherVersionOrFileIsRefused) {
  EXPECT_EQ(file_refusal_with("\"version\":1", "\"version\":2"), "version is not 1");
  EXPECT_EQ(file_refusal_with("\"version\":1", "\"version\":\"1\""), "version is not 1");
  EXPECT_EQ(file_refusal_with("\"version\":1", "\"version\":null"), "missing version");
  EXPECT_EQ(file_refusal("{}"), "missing version");
  EXPECT_EQ(file_refusal("[]"), "expected an object");
  EXPECT_EQ(file_refusal_with("\"llama\"", "5"), "model: expected a string");
  EXPECT_EQ(file_refusal_with("\"sampler\":true", "\"sampler\":1"),
            "sampler is neither true nor false");
}

TEST(CanaryFile, ANameIsShort) {
  const std::string reason = "the name of a canary is not 1 to 100 bytes long";
  EXPECT_EQ(file_refusal_with("\"rivers\"", "\"\""), reason);
  EXPECT_EQ(file_refusal_with("\"rivers\"", '"' + std::string(101, 'a') + '"'), reason);
  EXPECT_EQ(file_refusal_with("\"rivers\"", '"' + std::string(100, 'a') + '"'), "");
}

TEST(CanaryFile, NumbersAreChecked) {
  for (const char* const number : {"NaN", "-Infinity", "1e999"}) {
    EXPECT_EQ(file_refusal_with("\"logprob\":-0.1", "\"logprob\":" + std::string(number)),
              "not JSON");
  }
  const std::string canary = "canary 'rivers': ";
  EXPECT_EQ(file_refusal_with("\"logprob\":-0.1", "\"logprob\":\"x\""),
            canary + "logprob is not a number");
  EXPECT_EQ(file_refusal_with("\"logprob\":-0.1", "\"logprob\":null"), canary + "missing logprob");
  EXPECT_EQ(file_refusal_with("-2.4", "null"), canary + "top is not a number");
  for (const char* const id : {"-1", "4294967296", "7.0", "\"7\""}) {
    EXPECT_EQ(file_refusal_with("\"token_id\":7", "\"token_id\":" + std::string(id)),
              canary + "token_id: not a token id");
  }
  for (const char* const spread : {"-0.004", "1001", "1e300"}) {
    EXPECT_EQ(file_refusal_with("0.004", spread), canary + "spread is out of its range");
  }
  for (const char* const time : {"-1", "1e10", "1e300"}) {
    EXPECT_EQ(file_refusal_with("\"seconds\":0.25", "\"seconds\":" + std::string(time)),
              canary + "seconds is out of its range");
  }
}

TEST(CanaryFile, ListsAreLimited) {
  const std::string canary = "canary 'rivers': ";
  Canary one = rivers();
  one.prompt.clear();
  EXPECT_EQ(file_refusal(encode(file_with({one}))),
            canary + "prompt_token_ids is not a list of 1 to 65536");
  one.prompt.assign(kMaxPromptTokens + 1, 1);
  EXPECT_EQ(file_refusal(encode(file_with({one}))),
            canary + "prompt_token_ids is not a list of 1 to 65536");
  one = rivers();
  one.answer.clear();
  EXPECT_EQ(file_refusal(encode(file_with({one}))), canary + "answer is not a list of 1 to 256");
  one.answer.assign(kMaxAnswerTokens + 1, {.token = 1});
  EXPECT_EQ(file_refusal(encode(file_with({one}))), canary + "answer is not a list of 1 to 256");
  one = rivers();
  for (std::size_t i = 0; i < 5 * kTopTokens; ++i) one.answer[0].top[std::to_string(i)] = -9;
  EXPECT_EQ(file_refusal(encode(file_with({one}))), canary + "top is not a small object");
  for (const std::uint64_t max_tokens : {std::uint64_t{1}, std::uint64_t{257}}) {
    one = rivers();
    one.max_tokens = max_tokens;
    EXPECT_EQ(file_refusal(encode(file_with({one}))), canary + "max_tokens is out of its range");
  }
}

TEST(Margin, IsTheLeadOverTheBestOther) {
  EXPECT_EQ(margin_of({.token = 7, .logprob = -1, .top = {{"a", -1}, {"b", -3}, {"c", -4}}}), 2);
  // Two that are equally likely.
  EXPECT_EQ(margin_of({.token = 7, .logprob = -1, .top = {{"a", -1}, {"b", -1}}}), 0);
  // A token that is not the best one.
  EXPECT_EQ(margin_of({.token = 7, .logprob = -3, .top = {{"a", -1}, {"b", -3}}}), -2);
  // A token that is not among the best.
  EXPECT_EQ(margin_of({.token = 7, .logprob = -3, .top = {{"a", -1}, {"b", -2}}}), -2);
}

TEST(Margin, IsInfiniteWithoutOthers) {
  EXPECT_TRUE(std::isinf(margin_of({.token = 7, .logprob = -1})));
  EXPECT_GT(margin_of({.token = 7, .logprob = -1, .top = {{"a", -1}}}), 0);
}

}  // namespace
}  // namespace fo::canary
