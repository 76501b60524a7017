#include "refengine/scheduler.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loop/spawn.h"

namespace fo::refengine {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using Outcome = Scheduler::Outcome;
using Phase = Scheduler::Phase;

// A model whose next token is its position; it blocks before each step, sleep and wake until the
// test releases it.
class SchedulerTest : public ::testing::Test {
 protected:
  struct Request {
    std::vector<TokenId> tokens;
    std::optional<Outcome> end;
    const Scheduler::Turn* turn = nullptr;
  };

  SchedulerTest() {
    config_.vocab_size = 1000;
    Scheduler::Model model;
    model.step = [this](Generation::Step step) { return run_step(step); };
    model.read_kv = [this](KvRange range) { return read(range); };
    model.write_kv = [this](KvRange range, std::string bytes) {
      return note("write " + std::to_string(range.position) + "+" + std::to_string(range.count) +
                  " " + bytes);
    };
    model.sleep = [this] { return note("sleep"); };
    model.wake = [this](WakeTags tags) {
      return note(std::string("wake") + (tags.weights ? " weights" : "") +
                  (tags.kv_cache ? " kv" : ""));
    };
    scheduler_ = std::make_shared<Scheduler>(loop_.get_executor(), std::move(model));
  }

  awaitable<StepResult> run_step(Generation::Step step) {
    ++steps_waiting_;
    while (allowed_steps_ == 0) co_await gate_.wait();
    --allowed_steps_;
    --steps_waiting_;
    log_.push_back(std::to_string(step.position) + "+" + std::to_string(step.tokens.size()));
    StepResult result;
    if (!step.wants_token) co_return result;
    result.token.emplace();
    result.token->chosen.token = static_cast<TokenId>(step.position + step.tokens.size());
    co_return result;
  }

  awaitable<void> note(std::string what) {
    log_.push_back(std::move(what));
    co_return;
  }

  awaitable<std::string> read(KvRange range) {
    log_.push_back("read " + std::to_string(range.position) + "+" + std::to_string(range.count));
    co_return "bytes";
  }

  std::shared_ptr<Request> request(std::size_t prompt, std::uint64_t max_tokens,
                                   std::shared_ptr<const KvSnapshot> snapshot = nullptr) {
    auto result = std::make_shared<Request>();
    loop::spawn(loop_, serve(scheduler_, config_, prompt, max_tokens, std::move(snapshot), result));
    run();
    return result;
  }

  static awaitable<void> serve(std::shared_ptr<Scheduler> scheduler, ModelConfig config,
                               std::size_t prompt, std::uint64_t max_tokens,
                               std::shared_ptr<const KvSnapshot> snapshot,
                               std::shared_ptr<Request> result) {
    GenerationOptions options;
    options.max_tokens = max_tokens;
    Generation generation(config, std::vector<TokenId>(prompt, 1), options, 900);
    Scheduler::Turn turn(scheduler, std::move(snapshot));
    result->turn = &turn;
    Outcome outcome = Outcome::kToken;
    while (outcome == Outcome::kToken) outcome = co_await scheduler->advance(turn, generation);
    result->tokens.assign(generation.output().begin(), generation.output().end());
    result->end = outcome;
    result->turn = nullptr;
  }

  // Reads the keys and values of a request's first two tokens; the result is empty until then.
  std::shared_ptr<std::string> read_kv(const std::shared_ptr<Request>& request) {
    auto result = std::make_shared<std::string>();
    const auto find = [request]() -> const Scheduler::Turn* { return request->turn; };
    std::vector<KvRange> ranges{{0, 1}, {1, 1}};
    asio::co_spawn(
        loop_, scheduler_->read_kv(find, std::move(ranges)),
        [result](std::exception_ptr, const std::optional<std::vector<std::string>>& bytes) {
          *result = bytes ? bytes->at(0) + " " + bytes->at(1) : "none";
        });
    run();
    return result;
  }

  std::shared_ptr<bool> sleep(SleepMode mode) { return spawn(scheduler_->sleep(mode)); }
  std::shared_ptr<bool> wake(WakeTags tags) { return spawn(scheduler_->wake(tags)); }

  std::shared_ptr<bool> spawn(awaitable<void> body) {
    auto done = std::make_shared<bool>(false);
    loop::spawn(loop_, std::move(body), [done](std::exception_ptr) { *done = true; });
    run();
    return done;
  }

  void allow(std::size_t steps) {
    allowed_steps_ += steps;
    gate_.notify();
    run();
  }

  void run() {
    loop_.restart();
    loop_.poll();
  }

  asio::io_context loop_;
  ModelConfig config_;
  loop::Event gate_{loop_.get_executor()};
  std::size_t allowed_steps_ = 0;
  std::size_t steps_waiting_ = 0;
  std::vector<std::string> log_;
  std::shared_ptr<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, RequestsRunOneAfterTheOther) {
  const auto first = request(2, 3);
  const auto second = request(5, 1);
  EXPECT_EQ(steps_waiting_, 1u);
  allow(3);
  EXPECT_EQ(first->end, Outcome::kFinished);
  EXPECT_EQ(first->tokens, (std::vector<TokenId>{2, 3, 4}));
  EXPECT_FALSE(second->end);
  allow(1);
  EXPECT_EQ(second->tokens, (std::vector<TokenId>{5}));
  EXPECT_EQ(log_, (std::vector<std::string>{"0+2", "2+1", "3+1", "0+5"}));
}

TEST_F(SchedulerTest, AbortCutsWhatRunsAndWhatWaits) {
  const auto running = request(2, 9);
  const auto waiting = request(2, 9);
  allow(1);
  const auto asleep = sleep(SleepMode::kAbort);
  EXPECT_FALSE(*asleep) << "a step in flight is waited for";
  EXPECT_EQ(waiting->end, Outcome::kAborted);
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kNotAwake);
  EXPECT_FALSE(scheduler_->is_sleeping());
  allow(1);
  EXPECT_TRUE(*asleep);
  EXPECT_EQ(running->end, Outcome::kAborted);
  EXPECT_EQ(running->tokens, (std::vector<TokenId>{2})) << "the token of the cut step is dropped";
  EXPECT_TRUE(scheduler_->is_sleeping());
  EXPECT_EQ(log_.back(), "sleep");
}

TEST_F(SchedulerTest, WaitFinishesWhatWasAdmitted) {
  const auto running = request(2, 2);
  const auto waiting = request(2, 1);
  const auto asleep = sleep(SleepMode::kWait);
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kNotAwake);
  allow(2);
  EXPECT_FALSE(*asleep);
  allow(1);
  EXPECT_TRUE(*asleep);
  EXPECT_EQ(running->end, Outcome::kFinished);
  EXPECT_EQ(waiting->end, Outcome::kFinished);
  EXPECT_EQ(log_.back(), "sleep");
}

TEST_F(SchedulerTest, KeepGoesOnAfterWakingWithTheSameTokens) {
  const auto running = request(2, 3);
  const auto waiting = request(4, 1);
  allow(1);
  const auto asleep = sleep(SleepMode::kKeep);
  allow(1);
  EXPECT_TRUE(*asleep);
  EXPECT_FALSE(running->end);
  allow(5);
  EXPECT_EQ(log_.back(), "sleep") << "nothing runs while asleep";
  wake({true, true});
  EXPECT_EQ(running->end, Outcome::kFinished);
  EXPECT_EQ(running->tokens, (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(waiting->tokens, (std::vector<TokenId>{4}));
  EXPECT_EQ(log_,
            (std::vector<std::string>{"0+2", "2+1", "sleep", "wake weights kv", "0+4", "0+4"}))
      << "the lost KV cache is computed anew, in one piece";
}

TEST_F(SchedulerTest, TagsWakeOneByOne) {
  sleep(SleepMode::kAbort);
  EXPECT_TRUE(scheduler_->is_sleeping());
  wake({true, false});
  EXPECT_TRUE(scheduler_->is_sleeping());
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kNotAwake);
  wake({true, true});
  EXPECT_FALSE(scheduler_->is_sleeping());
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kAdmitted);
  EXPECT_EQ(log_, (std::vector<std::string>{"sleep", "wake weights", "wake kv"}));
}

TEST_F(SchedulerTest, DoingItTwiceDoesNothing) {
  EXPECT_TRUE(*wake({true, true}));
  EXPECT_TRUE(*sleep(SleepMode::kAbort));
  EXPECT_TRUE(*sleep(SleepMode::kWait));
  wake({true, true});
  EXPECT_TRUE(*wake({true, true}));
  EXPECT_EQ(log_, (std::vector<std::string>{"sleep", "wake weights kv"}));
}

TEST_F(SchedulerTest, SleepInTheMiddleOfWakingTakesItAllBack) {
  sleep(SleepMode::kAbort);
  wake({true, false});
  sleep(SleepMode::kAbort);
  wake({true, true});
  EXPECT_EQ(log_, (std::vector<std::string>{"sleep", "wake weights", "sleep", "wake weights kv"}));
}

TEST_F(SchedulerTest, WakeWaitsForASleepUnderWay) {
  const auto running = request(2, 2);
  const auto asleep = sleep(SleepMode::kWait);
  const auto awake = wake({true, true});
  EXPECT_FALSE(*awake);
  allow(2);
  EXPECT_TRUE(*asleep);
  EXPECT_TRUE(*awake);
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kAdmitted);
  EXPECT_EQ(running->end, Outcome::kFinished);
}

TEST_F(SchedulerTest, TheQueueIsLimited) {
  std::vector<std::shared_ptr<Request>> requests;
  for (std::size_t i = 0; i < Scheduler::kMaxRequests; ++i) {
    EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kAdmitted);
    requests.push_back(request(1, 1));
  }
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kBusy);
  allow(1);
  EXPECT_EQ(scheduler_->admission(), Scheduler::Admission::kAdmitted);
}

TEST_F(SchedulerTest, LoadCountsRequestsAndTokens) {
  const auto expect = [this](std::size_t running, std::size_t waiting, std::uint64_t prompt,
                             std::uint64_t generated) {
    const Scheduler::Load load = scheduler_->load();
    EXPECT_EQ(load.running, running);
    EXPECT_EQ(load.waiting, waiting);
    EXPECT_EQ(load.prompt_tokens, prompt);
    EXPECT_EQ(load.generated_tokens, generated);
  };
  expect(0, 0, 0, 0);
  request(2, 2);
  request(5, 1);
  request(3, 1);
  expect(1, 2, 0, 0);
  allow(1);
  expect(1, 2, 2, 1);
  const auto asleep = sleep(SleepMode::kKeep);
  expect(1, 2, 2, 1);
  allow(1);
  EXPECT_TRUE(*asleep);
  expect(0, 2, 2, 2);
  wake({true, true});
  expect(1, 1, 2, 2);
  allow(2);
  expect(0, 0, 10, 4);
}

TEST_F(SchedulerTest, TheCacheIsReadBetweenTwoSteps) {
  const auto running = request(2, 3);
  const auto waiting = request(2, 1);
  const auto read = read_kv(running);
  const auto other = read_kv(waiting);
  EXPECT_EQ(*read, "") << "a step is under way";
  allow(1);
  EXPECT_EQ(*read, "bytes bytes");
  EXPECT_EQ(*other, "none") << "it waits for its turn";
  allow(3);
  EXPECT_EQ(running->tokens, (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(*read_kv(running), "none") << "it has ended";
  EXPECT_EQ(log_, (std::vector<std::string>{"0+2", "read 0+1", "read 1+1", "2+1", "3+1", "0+2"}));
}

TEST_F(SchedulerTest, NoCacheIsReadWhileAsleepOrBeforeItIsComputedAgain) {
  const auto running = request(2, 2);
  allow(1);
  const auto read = read_kv(running);
  sleep(SleepMode::kKeep);
  allow(1);
  EXPECT_EQ(*read, "none");
  EXPECT_EQ(*read_kv(running), "none");
  EXPECT_EQ(log_, (std::vector<std::string>{"0+2", "2+1", "sleep"}));
}

TEST_F(SchedulerTest, ASnapshotIsWrittenWhenItsTurnComes) {
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->offer.tokens.resize(kBlockTokens + 2);
  snapshot->blocks = {"a", "b"};
  request(2, 1);
  const auto continued = request(kBlockTokens + 5, 2, snapshot);
  EXPECT_TRUE(log_.empty());
  allow(3);
  EXPECT_EQ(continued->end, Outcome::kFinished);
  EXPECT_EQ(log_,
            (std::vector<std::string>{"0+2", "write 0+16 a", "write 16+2 b", "18+3", "21+1"}));
}

TEST_F(SchedulerTest, ASnapshotIsWrittenAfterAWakeButNotTwice) {
  auto snapshot = std::make_shared<KvSnapshot>();
  snapshot->offer.tokens.resize(2);
  snapshot->blocks = {"a"};
  sleep(SleepMode::kKeep);
  const auto continued = request(4, 2, snapshot);
  wake({true, true});
  allow(1);
  sleep(SleepMode::kKeep);
  allow(1);
  wake({true, true});
  allow(1);
  EXPECT_EQ(log_, (std::vector<std::string>{"sleep", "wake weights kv", "write 0+2 a", "2+2", "4+1",
                                            "sleep", "wake weights kv"}));
  EXPECT_EQ(continued->end, Outcome::kFinished);
}

TEST_F(SchedulerTest, WhatWaitsMayOutliveTheLoop) {
  request(1, 1);
  request(1, 1);
  sleep(SleepMode::kWait);
  scheduler_.reset();
}

}  // namespace
}  // namespace fo::refengine
