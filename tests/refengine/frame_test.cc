#include "refengine/frame.h"

#include <gtest/gtest.h>

#include "os/file/file.h"
#include "os/file/pipe.h"
#include "refengine/model/generation.h"
#include "support/failure.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using os::Pipe;

TEST(Frame, ComesThroughWhole) {
  const Pipe pipe;
  write_frame(pipe.writer.get(), FrameKind::kToken, "payload");
  write_frame(pipe.writer.get(), FrameKind::kDone, "");
  const auto first = read_frame(pipe.reader.get());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->kind, FrameKind::kToken);
  EXPECT_EQ(first->payload, "payload");
  EXPECT_EQ(read_frame(pipe.reader.get())->kind, FrameKind::kDone);
}

TEST(Frame, EveryTruncationIsTheEndOrAnError) {
  const std::string whole = encode_frame(FrameKind::kToken, "abc");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    Pipe pipe;
    os::write_all(pipe.writer.get(), whole.substr(0, size), "test");
    pipe.writer.reset();
    const auto read = [&] { return read_frame(pipe.reader.get()); };
    if (size == 0) {
      EXPECT_EQ(read(), std::nullopt);
    } else {
      EXPECT_EQ(test::failure_of(read).status, ExitStatus::kProtocol) << size;
    }
  }
}

TEST(Frame, ForeignHeadersAreRefused) {
  EXPECT_THROW(check_header({0, 0}), Error);
  EXPECT_THROW(check_header({99, 0}), Error);
  EXPECT_THROW(check_header({1, kMaxFrameBytes + 1}), Error);
  EXPECT_NO_THROW(check_header({1, kMaxFrameBytes}));
}

TEST(Frame, AFullChunkOfTheWidestModelFits) {
  constexpr std::uint64_t kWidest = 1 << 16;
  EXPECT_LT(kWidest * kChunkTokens * sizeof(float) + encode_step({}).size(), kMaxFrameBytes);
}

TEST(Frame, TheSetUpSurvivesTheWay) {
  RankOptions options;
  options.rank = 1;
  options.ranks = 2;
  options.config = {.hidden_size = 64,
                    .intermediate_size = 128,
                    .layers = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 16,
                    .vocab_size = 258,
                    .max_positions = 100,
                    .bos = {},
                    .eos = {257}};
  options.driver = "sim";
  options.socket = "/run/gms \"quoted\".sock";
  options.device = base::DeviceOrdinal(3);
  options.kv_bytes = 1ull << 40;
  options.load_timeout = std::chrono::minutes(5);
  options.remap_timeout = std::chrono::milliseconds(1);
  options.kv_retry = std::chrono::seconds(5);
  const std::string text = encode_setup(options);
  EXPECT_EQ(encode_setup(decode_setup(text)), text);
  EXPECT_EQ(decode_setup(text).socket, options.socket);
  EXPECT_EQ(decode_setup(text).config.eos, options.config.eos);
  EXPECT_THROW(decode_setup("{}"), Error);
  EXPECT_THROW(decode_setup(text.substr(1)), Error);
}

TEST(Frame, TagsAndFailuresSurviveTheWay) {
  for (const bool weights : {false, true}) {
    for (const bool kv_cache : {false, true}) {
      const WakeTags tags = decode_tags(encode_tags({weights, kv_cache}));
      EXPECT_EQ(tags.weights, weights);
      EXPECT_EQ(tags.kv_cache, kv_cache);
    }
  }
  EXPECT_FALSE(decode_tags("").any());
  const Error error = decode_failure(encode_failure(ExitStatus::kBadData, "stale 'x'"));
  EXPECT_EQ(error.status(), ExitStatus::kBadData);
  EXPECT_STREQ(error.what(), "stale 'x'");
  EXPECT_EQ(decode_failure("").status(), ExitStatus::kSoftware);
}

TEST(Frame, ResultsSurviveTheWay) {
  EXPECT_EQ(encode_result({}), "");
  const TokenChoice full{{7, -1.5f}, {{8, -0.5f}, {7, -1.5f}}, 2};
  const StepResult both{{TokenChoice{{5, -0.25f}, {}, 1}, full}, TokenChoice{{9, 0}, {}}};
  const std::string payload = encode_result(both);
  const StepResult decoded = decode_result(payload);
  ASSERT_EQ(decoded.scores.size(), 2u);
  EXPECT_EQ(decoded.scores[1].chosen, full.chosen);
  EXPECT_EQ(decoded.scores[1].top, full.top);
  EXPECT_EQ(decoded.scores[1].rank, 2u);
  EXPECT_EQ(decoded.token->chosen, both.token->chosen);
  EXPECT_FALSE(decode_result(encode_result({both.scores, std::nullopt})).token);
  EXPECT_THROW(decode_result("abc"), Error);
  EXPECT_THROW(decode_result(payload.substr(1)), Error);
}

TEST(Frame, StepsSurviveTheWay) {
  StepRequest step;
  step.position = 3;
  step.count = 2;
  step.wants_token = true;
  step.sampling.seed = 7;
  step.constraints = {{{5, -1.5f}}, {5, 6}};
  step.targets = {1, 2};
  step.target_logprobs = 4;
  step.input = "input";
  const std::string payload = encode_step(step);
  const StepRequest decoded = decode_step(payload);
  EXPECT_EQ(decoded.position, 3u);
  EXPECT_EQ(decoded.count, 2u);
  EXPECT_TRUE(decoded.wants_token);
  EXPECT_EQ(decoded.sampling.seed, 7u);
  EXPECT_EQ(decoded.constraints.biases.front().bias, -1.5f);
  EXPECT_EQ(decoded.constraints.allowed, step.constraints.allowed);
  EXPECT_EQ(decoded.targets, step.targets);
  EXPECT_EQ(decoded.target_logprobs, 4u);
  EXPECT_EQ(decoded.input, "input");
  for (std::size_t size = 0; size < payload.size() - step.input.size(); ++size) {
    EXPECT_THROW(decode_step(std::string_view(payload).substr(0, size)), Error) << size;
  }
}

TEST(Frame, RangesSurviveTheWay) {
  const std::string payload = encode_range({7, 2}, "bytes");
  std::string_view rest = payload;
  const KvRange range = take_range(rest);
  EXPECT_EQ(range.position, 7u);
  EXPECT_EQ(range.count, 2u);
  EXPECT_EQ(rest, "bytes");
  std::string_view truncated = std::string_view(payload).substr(0, sizeof(KvRange) - 1);
  EXPECT_THROW(take_range(truncated), Error);
}

TEST(Frame, BrokenNumbersAreRefused) {
  EXPECT_THROW(as_values<float>("abc"), Error);
  const std::vector<TokenId> tokens{1, 2, 3};
  EXPECT_EQ(as_values<TokenId>(as_text(std::span(tokens))), tokens);
}

}  // namespace
}  // namespace fo::refengine
