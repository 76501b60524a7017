#include "route/queue/dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "plan/degradation.h"
#include "support/soon.h"
#include "support/stderr_text.h"

namespace fo::test {
namespace {

using boost::asio::awaitable;
using fleet::HealthEvent;
using fleet::HealthState;
using route::Dispatcher;
using route::DispatchOptions;
using route::Job;
using route::Policy;
using route::WorkerPtr;

base::Duration steady_now() { return base::Deadline::Clock::now().time_since_epoch(); }

/// A request that waits for a worker, has one, or was refused.
struct Placement {
  explicit Placement(const std::string& id, std::uint64_t prompt_tokens)
      : job(id, request_of(prompt_tokens), {}) {
    job.model = "m";
  }
  static route::ClientRequest request_of(std::uint64_t prompt_tokens) {
    route::ClientRequest request;
    request.api = route::Api::kChat;
    request.prompt_tokens = prompt_tokens;
    request.max_tokens = 1;
    return request;
  }
  [[nodiscard]] std::string worker() const { return job.worker ? job.worker->id : ""; }
  /// The status of the refusal; 0 without one.
  [[nodiscard]] int refusal() const { return error ? error->status : 0; }

  Job job;
  bool is_over = false;
  std::optional<route::ApiError> error;
};
using Placed = std::shared_ptr<Placement>;

class DispatcherTest : public testing::Test {
 protected:
  explicit DispatcherTest(const DispatchOptions& options = in_order())
      : dispatcher_(loop_.io().get_executor(), options, workers_, metrics_) {}
  /// Ends what still waits.
  ~DispatcherTest() override {
    for (const Placed& placed : placed_) dispatcher_.kill(placed->job);
    loop_.run_ready();
    for (const Placed& placed : placed_) {
      EXPECT_TRUE(placed->is_over);
      release(placed);
    }
    for (const auto& [id, worker] : workers_.all()) {
      EXPECT_EQ(worker->requests, 0U) << id;
      EXPECT_EQ(worker->tokens, 0U) << id;
    }
  }

  static DispatchOptions in_order() {
    DispatchOptions options;
    options.policy = Policy::kRoundRobin;
    return options;
  }

  WorkerPtr add(const std::string& id, std::uint64_t slots = 1, const std::string& card = "") {
    const auto worker = std::make_shared<route::Worker>(id, fleet::Health{});
    worker->card = card;
    worker->url = "http://" + id;
    worker->model = "m";
    worker->slots = slots;
    worker->is_reachable = true;
    workers_.add(worker);
    dispatcher_.on_change();
    return worker;
  }
  /// A worker that also serves the model "adapter".
  WorkerPtr add_with_adapter(const std::string& id, std::uint64_t slots = 1) {
    WorkerPtr worker = add(id, slots);
    worker->other_models = {"adapter"};
    workers_.regroup(worker);
    return worker;
  }
  void make_unhealthy(const WorkerPtr& worker) {
    for (int i = 0; i < 3; ++i) worker->health.apply(HealthEvent::kFault, steady_now(), 0.5);
    ASSERT_EQ(worker->health.state(), HealthState::kUnhealthy);
    dispatcher_.on_change();
  }

  void set_verdict(const WorkerPtr& worker, HealthState health, double weight) {
    worker->verdict = {.health = health, .weight = weight};
    dispatcher_.on_change();
    loop_.run_ready();
  }

  Placed make(std::uint64_t prompt_tokens = 1) {
    const std::string id = "job" + std::to_string(placed_.size());
    placed_.push_back(std::make_shared<Placement>(id, prompt_tokens));
    return placed_.back();
  }
  /// Places a job whose answer has begun.
  Placed resume(const Placed& placed) {
    placed->job.set = {"m", ""};
    placed->job.resume_until = soon();
    place(placed);
    return placed;
  }
  void place(const Placed& placed) {
    placed->is_over = false;
    loop::spawn(loop_.io(), run(dispatcher_, placed));
    loop_.run_ready();
  }
  Placed place() {
    Placed placed = make();
    place(placed);
    return placed;
  }
  Placed place_for_adapter(std::size_t tier = plan::kPremium) {
    Placed placed = make();
    placed->job.model = "adapter";
    placed->job.tier = tier;
    place(placed);
    return placed;
  }
  void release(const Placed& placed) {
    dispatcher_.release(placed->job);
    loop_.run_ready();
  }
  /// Makes the one request on the worker end, and then each of those that follow it, so that
  /// `count` of `waiting` get the worker. Returns how many of these are premium.
  int premium_of_next(int count, Placed running, const std::vector<Placed>& waiting) {
    int premium = 0;
    for (int i = 0; i < count; ++i) {
      const std::string worker = running->worker();
      release(running);
      const auto next = std::ranges::find_if(
          waiting, [&](const Placed& placed) { return placed->worker() == worker; });
      if (worker.empty() || next == waiting.end()) return -1;
      running = *next;
      if (running->job.tier == plan::kPremium) ++premium;
    }
    return premium;
  }

  TestLoop loop_;
  route::Workers workers_;
  route::Metrics metrics_;
  Dispatcher dispatcher_;
  std::vector<Placed> placed_;

 private:
  static awaitable<void> run(Dispatcher& dispatcher, Placed placed) {
    placed->error = co_await dispatcher.place(placed->job);
    placed->is_over = true;
  }
};

TEST_F(DispatcherTest, ARequestWaitsForASlot) {
  const WorkerPtr worker = add("a");
  const Placed first = place();
  EXPECT_EQ(first->worker(), "a");
  EXPECT_EQ(worker->requests, 1U);
  const Placed second = place();
  EXPECT_FALSE(second->is_over);
  const route::QueueGauge queued = dispatcher_.queued({"m", ""});
  // The same for a request that waits beside the queue.
  const Placed pinned = make();
  pinned->job.pinned_to = "a";
  place(pinned);
  EXPECT_EQ(dispatcher_.queued({"m", ""}).requests, 2U);
  EXPECT_EQ(dispatcher_.queued({"m", ""}).tokens, 2 * queued.tokens);
  dispatcher_.kill(pinned->job);
  loop_.run_ready();
  EXPECT_EQ(dispatcher_.queued({"m", ""}).requests, 1U);
  EXPECT_TRUE(dispatcher_.queued({"m", ""}).oldest_age.has_value());
  release(first);
  EXPECT_EQ(second->worker(), "a");
  EXPECT_EQ(dispatcher_.queued({"m", ""}).requests, 0U);
  release(second);
  EXPECT_EQ(worker->requests, 0U);
  EXPECT_EQ(worker->tokens, 0U);
}

TEST_F(DispatcherTest, ARequestWaitsForTokens) {
  add("a", 10)->kv_tokens = 1000;
  dispatcher_.on_change();
  const Placed first = make(600);
  const Placed second = make(600);
  place(first);
  place(second);
  EXPECT_EQ(first->worker(), "a");
  EXPECT_FALSE(second->is_over);
  release(first);
  EXPECT_EQ(second->worker(), "a");
}

TEST_F(DispatcherTest, ARequestLargerThanEachCacheHoldsUpNoOthers) {
  add("a", 10)->kv_tokens = 1000;
  dispatcher_.on_change();
  const Placed running = place();
  const Placed large = make(2000);
  place(large);
  const Placed small = place();
  EXPECT_FALSE(large->is_over);
  EXPECT_EQ(small->worker(), "a");
  release(running);
  EXPECT_FALSE(large->is_over);
  release(small);
  EXPECT_EQ(large->worker(), "a");
}

TEST_F(DispatcherTest, ManyRequestsLargerThanEachCacheHoldUpNoOthers) {
  add("a", 2)->kv_tokens = 1000;
  dispatcher_.on_change();
  const Placed first = place();
  std::vector<Placed> large;
  for (int i = 0; i < 1000; ++i) {
    large.push_back(make(2000));
    place(large.back());
    ASSERT_FALSE(large.back()->is_over);
  }
  const Placed second = place();
  EXPECT_EQ(second->worker(), "a");
  const Placed again = make();
  again->job.is_admitted = true;
  place(again);
  EXPECT_FALSE(again->is_over);
  release(first);
  EXPECT_EQ(again->worker(), "a");
}

TEST_F(DispatcherTest, WhatHasLeftTheQueueCountsTowardsItsLimits) {
  add_with_adapter("a");
  add("b");
  DispatchOptions options = in_order();
  options.queue.requests = 5;
  dispatcher_.set_options(options);
  dispatcher_.on_change();
  EXPECT_EQ(place_for_adapter()->worker(), "a");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(place_for_adapter()->is_over);
  EXPECT_EQ(place_for_adapter()->refusal(), 503);
}

TEST_F(DispatcherTest, APromptNeedsTheRoomThatTheEngineHasNamed) {
  const WorkerPtr a = add("a", 10);
  a->kv_tokens = 1000;
  dispatcher_.on_change();
  const Placed first = make(600);
  const Placed second = make(600);
  place(first);
  place(second);
  EXPECT_FALSE(second->is_over);
  dispatcher_.set_prompt_tokens(first->job, 390);
  loop_.run_ready();
  EXPECT_EQ(second->worker(), "a");
  EXPECT_EQ(first->job.prompt_tokens, 390U);
  EXPECT_EQ(a->tokens, 992U);
  // It may also be larger than the estimate, even than the cache.
  dispatcher_.set_prompt_tokens(second->job, 2000);
  EXPECT_EQ(a->tokens, 2392U);
  const Placed third = place();
  EXPECT_FALSE(third->is_over);
  release(second);
  EXPECT_EQ(third->worker(), "a");
}

TEST_F(DispatcherTest, WhatHadAWorkerIsServedBeforeTheQueue) {
  add("a");
  const Placed first = place();
  const Placed queued = place();
  const Placed again = make();
  again->job.is_admitted = true;
  place(again);
  release(first);
  EXPECT_EQ(again->worker(), "a");
  EXPECT_FALSE(queued->is_over);
}

TEST_F(DispatcherTest, WhatHadAWorkerDoesNotTakeTheShareOfOtherTiers) {
  add("a");
  const Placed running = place();
  std::vector<Placed> waiting;
  for (int i = 0; i < 10; ++i) {
    const Placed again = waiting.emplace_back(make());
    again->job.tier = plan::kBestEffort;
    again->job.is_admitted = true;
    place(again);
  }
  for (int i = 0; i < 10; ++i) waiting.push_back(place());
  EXPECT_EQ(premium_of_next(10, running, waiting), 8) << "4 to 1";
}

TEST_F(DispatcherTest, WhatWaitsBesideTheQueueDoesNotTakeTheShareOfOtherTiers) {
  add_with_adapter("a");
  add("b");
  const Placed running = place_for_adapter(plan::kBestEffort);
  std::vector<Placed> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(place_for_adapter(plan::kBestEffort));
  ASSERT_EQ(place()->worker(), "b");
  for (int i = 0; i < 10; ++i) waiting.push_back(place());
  EXPECT_EQ(premium_of_next(10, running, waiting), 8) << "4 to 1";
}

TEST_F(DispatcherTest, AWorkerThatFailedARequestGetsItOnlyIfNoOtherIsLeft) {
  add("a", 10);
  const WorkerPtr b = add("b", 10);
  for (int i = 0; i < 4; ++i) {
    const Placed placed = make();
    placed->job.failed_on = {{"a", {}}};
    place(placed);
    EXPECT_EQ(placed->worker(), "b");
  }
  b->is_reachable = false;
  dispatcher_.on_change();
  const Placed placed = make();
  placed->job.failed_on = {{"a", {}}};
  place(placed);
  EXPECT_EQ(placed->worker(), "a");
}

TEST_F(DispatcherTest, TheOnlyWorkerIsAskedAThirdTimeAfterAPauseOrWhenItHasArrivedAgain) {
  const WorkerPtr a = add("a", 10);
  const auto may_go_since = [&](base::Duration time) {
    Placed placed = make();
    placed->job.failed_on = {{"a",
                              {.incarnation = a->incarnation,
                               .is_fruitless = true,
                               .until = base::Deadline::Clock::now() - time}}};
    place(placed);
    return placed;
  };
  EXPECT_EQ(may_go_since(base::Duration::zero())->worker(), "a");
  const Placed waits = may_go_since(-std::chrono::hours(1));
  EXPECT_FALSE(waits->is_over);
  ++a->incarnation;
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(waits->worker(), "a");
}

TEST_F(DispatcherTest, RequestsForAnAdapterOfOtherWorkersHoldUpNoOthers) {
  const WorkerPtr a = add_with_adapter("a", 2);
  add("b", 2);
  a->is_reachable = false;
  dispatcher_.on_change();
  std::vector<Placed> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(place_for_adapter());
  EXPECT_EQ(place()->worker(), "b");
  a->is_reachable = true;
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(waiting[0]->worker(), "a");
  EXPECT_EQ(waiting[1]->worker(), "a");
  EXPECT_FALSE(waiting[2]->is_over);
  EXPECT_EQ(place()->worker(), "b");
}

TEST_F(DispatcherTest, AnAnswerThatIsTooLargeAtPresentLeavesTheRoomToSmallerOnes) {
  const WorkerPtr a = add("a", 10);
  a->kv_tokens = 1000;
  dispatcher_.on_change();
  const Placed running = make(500);
  place(running);
  const Placed large = resume(make(900));
  EXPECT_FALSE(large->is_over);
  EXPECT_EQ(resume(make(10))->worker(), "a");
  release(running);
  EXPECT_EQ(large->worker(), "a");
}

TEST_F(DispatcherTest, AnswersThatOneWorkerCanNotResumeLeaveItToOthers) {
  const WorkerPtr a = add("a", 10);
  const auto resuming = [&](bool is_fruitless) {
    const Placed placed = make();
    if (is_fruitless) {
      placed->job.failed_on = {{"a", {.incarnation = a->incarnation, .is_fruitless = true}}};
    }
    return resume(placed);
  };
  // As many as may be resumed at a time.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(resuming(true)->is_over);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(resuming(false)->worker(), "a");
  EXPECT_FALSE(resuming(false)->is_over);
}

TEST_F(DispatcherTest, AnAnswerWaitsForAnotherWorkerThanOneThatBroughtItNothing) {
  const WorkerPtr a = add("a", 10);
  const auto resuming = [&](bool is_fruitless) {
    const Placed placed = make();
    placed->job.failed_on = {{"a", {.incarnation = a->incarnation, .is_fruitless = is_fruitless}}};
    return resume(placed);
  };
  EXPECT_EQ(resuming(false)->worker(), "a");
  const Placed waits = resuming(true);
  EXPECT_FALSE(waits->is_over);
  add("b", 2);
  EXPECT_EQ(waits->worker(), "b");
  EXPECT_EQ(resuming(false)->worker(), "b");
  dispatcher_.end_resume(waits->job);
  EXPECT_EQ(resuming(false)->worker(), "a") << "the other one is full";
}

TEST_F(DispatcherTest, APinnedRequestWaitsForItsWorker) {
  add("a", 10);
  const WorkerPtr b = add("b");
  const Placed first = make();
  first->job.pinned_to = "b";
  place(first);
  EXPECT_EQ(first->worker(), "b");
  const Placed second = make();
  second->job.pinned_to = "b";
  place(second);
  EXPECT_FALSE(second->is_over);
  // It does not keep others from the other worker.
  EXPECT_EQ(place()->worker(), "a");
  release(first);
  EXPECT_EQ(second->worker(), "b");
}

TEST_F(DispatcherTest, ManyRequestsForOtherWorkersHoldUpNoOthers) {
  const WorkerPtr a = add_with_adapter("a");
  add("b", 10);
  a->life = fleet::Life::kDraining;
  dispatcher_.on_change();
  const auto wait_for_a = [&](const std::string& pinned_to, const std::string& model) {
    const Placed placed = make();
    placed->job.pinned_to = pinned_to;
    placed->job.model = model;
    placed->job.is_admitted = pinned_to.empty();
    place(placed);
    EXPECT_FALSE(placed->is_over);
  };
  for (int i = 0; i < 300; ++i) wait_for_a("a", "m");
  for (int i = 0; i < 300; ++i) wait_for_a("", "adapter");
  const Placed again = make();
  again->job.is_admitted = true;
  place(again);
  // Each search is for some of them.
  for (int search = 0; search < 3; ++search) dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(again->worker(), "b");
  const Placed for_adapter = place_for_adapter();
  EXPECT_EQ(place()->worker(), "b") << "the head of the queue may not have it";
}

TEST_F(DispatcherTest, ManyNewRequestsForOtherWorkersHoldUpNoOthers) {
  add_with_adapter("a");
  add("b");
  ASSERT_EQ(place_for_adapter()->worker(), "a");
  for (int i = 0; i < 600; ++i) ASSERT_FALSE(place_for_adapter()->is_over);
  EXPECT_EQ(place()->worker(), "b");
}

TEST_F(DispatcherTest, ManyAnswersThatOtherWorkersContinueHoldUpNoOthers) {
  add_with_adapter("a");
  const Placed running = place();
  add("b");
  for (int i = 0; i < 600; ++i) {
    const Placed placed = make();
    placed->job.model = "adapter";
    ASSERT_FALSE(resume(placed)->is_over);
  }
  const Placed placed = resume(make());
  for (int search = 0; search < 3; ++search) dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(placed->worker(), "b");
}

TEST_F(DispatcherTest, SuspectsThatWaitTogetherGoToAWorkerOneAfterTheOther) {
  const WorkerPtr worker = add("a", 10);
  std::vector<Placed> suspects;
  for (int i = 0; i < 3; ++i) {
    suspects.push_back(place());
    dispatcher_.suspects().begin(suspects.back()->job.number, worker->number);
  }
  dispatcher_.suspects().on_death(worker->number);
  worker->is_reachable = false;
  dispatcher_.on_change();
  for (const Placed& suspect : suspects) release(suspect);
  for (const Placed& suspect : suspects) place(suspect);
  worker->is_reachable = true;
  dispatcher_.on_change();
  loop_.run_ready();
  const auto placed = [&] {
    return std::ranges::count_if(suspects,
                                 [](const Placed& suspect) { return suspect->worker() == "a"; });
  };
  EXPECT_EQ(placed(), 1);
  // The first one leaves before it is sent, and the second one has brought a token.
  release(suspects[0]);
  EXPECT_EQ(suspects[1]->worker(), "a");
  EXPECT_EQ(placed(), 1);
  dispatcher_.suspects().begin(suspects[1]->job.number, worker->number);
  EXPECT_TRUE(dispatcher_.suspects().on_token(suspects[1]->job.number));
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(placed(), 2);
}

TEST_F(DispatcherTest, ADrainedWorkerGetsNothingNew) {
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  a->life = fleet::Life::kDraining;
  dispatcher_.on_change();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(place()->worker(), "b");
}

TEST_F(DispatcherTest, HalfOfASetStaysInWhateverItsHealth) {
  std::vector<WorkerPtr> workers;
  for (const char* id : {"a", "b", "c", "d", "e"}) workers.push_back(add(id, 10));
  const auto out = [&] {
    return std::count_if(workers.begin(), workers.end(),
                         [](const WorkerPtr& worker) { return worker->weight == 0; });
  };
  make_unhealthy(workers[0]);
  make_unhealthy(workers[1]);
  EXPECT_EQ(out(), 2);
  EXPECT_EQ(metrics_.panics.get(), 0U);
  make_unhealthy(workers[2]);
  make_unhealthy(workers[3]);
  EXPECT_EQ(out(), 2);
  EXPECT_EQ(metrics_.panics.get(), 1U) << "one panic, however long it is";
}

TEST_F(DispatcherTest, AConvictedWorkerIsOutEvenIfItIsTheOnlyOne) {
  const WorkerPtr worker = add("a");
  make_unhealthy(worker);
  EXPECT_GT(worker->weight, 0) << "a lone worker is never out by suspicion";
  worker->health.apply(HealthEvent::kConviction, steady_now(), 0.5);
  dispatcher_.on_change();
  EXPECT_EQ(worker->weight, 0);
  EXPECT_FALSE(place()->is_over);
}

TEST_F(DispatcherTest, TheLowerWeightOfHealthAndVerdictCounts) {
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  set_verdict(a, HealthState::kSuspicious, 0.5);
  EXPECT_EQ(a->weight, 0.5);
  make_unhealthy(a);
  EXPECT_EQ(a->weight, 0);
  a->health = fleet::Health{};
  set_verdict(a, HealthState::kHealthy, 1);
  EXPECT_EQ(a->weight, 1);
}

TEST_F(DispatcherTest, AWorkerThatIsConvictedByVerdictGetsNothing) {
  const WorkerPtr a = add("a", 10);
  const WorkerPtr b = add("b", 10);
  set_verdict(a, HealthState::kConvicted, 0);
  EXPECT_TRUE(a->is_convicted());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(place()->worker(), "b");
  // No panic brings it back, and neither does its own probation.
  make_unhealthy(b);
  EXPECT_GT(b->weight, 0);
  EXPECT_EQ(a->weight, 0);
  EXPECT_EQ(metrics_.panics.get(), 1U);
  make_unhealthy(a);
  a->health.apply(HealthEvent::kTime, steady_now() + std::chrono::seconds(10), 0.5);
  ASSERT_EQ(a->health.state(), HealthState::kProbation);
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "b");
  // A request that only this worker can answer waits.
  const Placed pinned = make();
  pinned->job.pinned_to = "a";
  place(pinned);
  EXPECT_FALSE(pinned->is_over);
  // As a lone worker it stays out, too.
  b->is_reachable = false;
  dispatcher_.on_change();
  const Placed waiting = place();
  EXPECT_FALSE(waiting->is_over);
  set_verdict(a, HealthState::kHealthy, 1);
  EXPECT_EQ(waiting->worker(), "a");
}

TEST_F(DispatcherTest, AtMostHalfOfASetIsOutByVerdictsOfSuspicion) {
  const WorkerPtr lone = add("a", 10);
  set_verdict(lone, HealthState::kUnhealthy, 0);
  EXPECT_GT(lone->weight, 0);
  EXPECT_EQ(place()->worker(), "a");
  const WorkerPtr b = add("b", 10);
  EXPECT_EQ(lone->weight, 0);
  make_unhealthy(b);
  EXPECT_EQ((lone->weight > 0) + (b->weight > 0), 1) << "by health and verdicts together";
  EXPECT_EQ(metrics_.panics.get(), 2U);
}

TEST_F(DispatcherTest, ATickSetsTheWeightOfAVerdictThatHasChanged) {
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  a->verdict = {.health = HealthState::kSuspicious, .weight = 0.5};
  dispatcher_.on_tick();
  EXPECT_EQ(a->weight, 0.5);
}

TEST_F(DispatcherTest, AProbationIsOneRequestAtATime) {
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  make_unhealthy(a);
  a->health.apply(HealthEvent::kTime, steady_now() + std::chrono::seconds(10), 0.5);
  ASSERT_EQ(a->health.state(), HealthState::kProbation);
  dispatcher_.on_change();
  const Placed trial = place();
  EXPECT_EQ(trial->worker(), "a");
  EXPECT_TRUE(trial->job.lease.has_value());
  EXPECT_EQ(place()->worker(), "b");
  EXPECT_EQ(place()->worker(), "b");
  release(trial);
  EXPECT_EQ(place()->worker(), "a");
}

TEST_F(DispatcherTest, AProbationWithoutAnEndInTimeIsAnEjection) {
  DispatchOptions options = in_order();
  options.lease = base::Duration::zero();
  dispatcher_.set_options(options);
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  make_unhealthy(a);
  a->health.apply(HealthEvent::kTime, steady_now() + std::chrono::seconds(10), 0.5);
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "a");
  EXPECT_EQ(metrics_.ejections.get(), 0U);
  dispatcher_.on_tick();
  EXPECT_EQ(a->health.state(), HealthState::kUnhealthy);
  EXPECT_EQ(metrics_.ejections.get(), 1U);
}

TEST_F(DispatcherTest, ASpareTakesRequestsWhileAWorkerIsOut) {
  const WorkerPtr a = add("a", 10);
  const WorkerPtr spare = add("spare", 10);
  spare->life = fleet::Life::kSpare;
  dispatcher_.on_change();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(place()->worker(), "a");
  a->is_reachable = false;
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "spare");
  // The other engine of a failover pair has the address of the one that serves.
  spare->url = a->url;
  dispatcher_.on_change();
  EXPECT_FALSE(place()->is_over);
}

TEST_F(DispatcherTest, ASpareTakesRequestsWithoutAnyOtherWorker) {
  add("spare", 10)->life = fleet::Life::kSpare;
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "spare");
}

TEST_F(DispatcherTest, ASpareInProbationGetsARequestWhileAWorkerIsOut) {
  const WorkerPtr a = add("a", 10);
  add("b", 10);
  const WorkerPtr spare = add("spare", 10);
  spare->life = fleet::Life::kSpare;
  make_unhealthy(spare);
  spare->health.apply(HealthEvent::kTime, steady_now() + std::chrono::seconds(10), 0.5);
  ASSERT_EQ(spare->health.state(), HealthState::kProbation);
  dispatcher_.on_change();
  EXPECT_NE(place()->worker(), "spare") << "it is not needed";
  a->is_reachable = false;
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "spare");
  EXPECT_EQ(place()->worker(), "b");
}

TEST_F(DispatcherTest, ADrainedSpareTakesNoRequests) {
  const WorkerPtr a = add("a", 10);
  const WorkerPtr spare = add("spare", 10);
  spare->life = fleet::Life::kSpare;
  spare->is_drained = true;
  a->is_reachable = false;
  dispatcher_.on_change();
  EXPECT_FALSE(place()->is_over);
}

TEST_F(DispatcherTest, ASpareTakesRequestsWhileTheOthersCarryLessThanTheDemand) {
  add("a", 1);
  const WorkerPtr spare = add("spare", 1);
  spare->life = fleet::Life::kSpare;
  dispatcher_.on_change();
  const Placed first = place();
  const Placed second = place();
  EXPECT_EQ(first->worker(), "a");
  dispatcher_.set_ratio(1);
  loop_.run_ready();
  EXPECT_FALSE(second->is_over);
  dispatcher_.set_ratio(0.9);
  loop_.run_ready();
  EXPECT_EQ(second->worker(), "spare");
  dispatcher_.set_ratio(1.1);
  release(second);
  EXPECT_FALSE(place()->is_over);
}

TEST_F(DispatcherTest, AtTheAddressOfAnEngineThatHandsOverNewRequestsWaitForTheSpare) {
  const WorkerPtr a = add("a", 10);
  const WorkerPtr spare = add("spare", 10);
  spare->life = fleet::Life::kSpare;
  spare->url = a->url;
  // An operator drains it.
  a->life = fleet::Life::kDraining;
  dispatcher_.on_change();
  const Placed fresh = place();
  EXPECT_FALSE(fresh->is_over);
  a->drains_itself = true;
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(fresh->worker(), "spare");
  // An answer that has begun waits until the spare is active.
  const Placed begun = resume(make());
  EXPECT_FALSE(begun->is_over);
  spare->life = fleet::Life::kReady;
  a->life = fleet::Life::kSpare;
  a->drains_itself = false;
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(begun->worker(), "spare");
}

TEST_F(DispatcherTest, WithAnotherWorkerNoRequestWaitsForTheSpare) {
  const WorkerPtr a = add("a", 10);
  const WorkerPtr spare = add("spare", 10);
  const WorkerPtr b = add("b", 10);
  spare->life = fleet::Life::kSpare;
  spare->url = a->url;
  a->life = fleet::Life::kDraining;
  a->drains_itself = true;
  dispatcher_.on_change();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(place()->worker(), "b");
}

TEST_F(DispatcherTest, ADecodeWorkerWithoutOneForPrefillGetsNoRequest) {
  const WorkerPtr decode = add("decode", 10);
  decode->role = route::Role::kDecode;
  dispatcher_.on_change();
  const Placed waits = place();
  EXPECT_FALSE(waits->is_over);
  const Placed refused = make();
  refused->job.received -= std::chrono::hours(1);
  place(refused);
  ASSERT_EQ(refused->refusal(), 503);
  EXPECT_EQ(refused->error->code, "no_pair");
  EXPECT_TRUE(refused->error->retry_after.has_value());
  // An answer that has begun may go on there.
  const Placed begun = resume(make());
  EXPECT_EQ(begun->worker(), "decode");
  const WorkerPtr prefill = std::make_shared<route::Worker>("prefill", fleet::Health{});
  prefill->model = "m";
  prefill->role = route::Role::kPrefill;
  prefill->is_reachable = true;
  workers_.add(prefill);
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(waits->worker(), "decode");
  EXPECT_EQ(place()->worker(), "decode");
}

TEST_F(DispatcherTest, ADecodeWorkerNeedsOneForPrefillOfItsOwnCohort) {
  const auto add_to = [this](const std::string& cohort, route::Role role) {
    const WorkerPtr worker = std::make_shared<route::Worker>(cohort, fleet::Health{});
    worker->id += role == route::Role::kPrefill ? "-prefill" : "";
    worker->model = "m";
    worker->role = role;
    worker->name_space = cohort;
    worker->slots = 4;
    worker->is_reachable = true;
    workers_.add(worker);
    dispatcher_.on_change();
    return worker;
  };
  const WorkerPtr alone = add_to("a", route::Role::kDecode);
  add_to("b", route::Role::kDecode);
  add_to("b", route::Role::kPrefill);
  EXPECT_EQ(place()->worker(), "b");
  EXPECT_EQ(place()->worker(), "b");
  make_unhealthy(alone);
  alone->health.apply(HealthEvent::kTime, steady_now() + std::chrono::hours(1), 0.5);
  ASSERT_EQ(alone->health.state(), HealthState::kProbation);
  dispatcher_.on_change();
  EXPECT_EQ(place()->worker(), "b");
  alone->health = fleet::Health{};
  add_to("a", route::Role::kPrefill);
  EXPECT_EQ(place()->worker(), "a");
}

TEST_F(DispatcherTest, ALevelReducesTheSlots) {
  add("a", 4);
  dispatcher_.set_level(plan::kDegradationLevels[4].setting);
  EXPECT_EQ(place()->worker(), "a");
  EXPECT_EQ(place()->worker(), "a");
  const Placed third = place();
  EXPECT_FALSE(third->is_over);
  dispatcher_.set_level(plan::kDegradationLevels[0].setting);
  loop_.run_ready();
  EXPECT_EQ(third->worker(), "a");
}

TEST_F(DispatcherTest, WithoutAnyWorkerARequestIsRefusedForAMoment) {
  const Placed placed = place();
  EXPECT_EQ(placed->refusal(), 503);
  EXPECT_EQ(placed->error->code, "no_worker");
  EXPECT_TRUE(placed->error->retry_after.has_value());
}

TEST_F(DispatcherTest, ALevelRefusesTiers) {
  add("a", 4);
  dispatcher_.set_level(plan::kDegradationLevels[2].setting);
  const Placed placed = make();
  placed->job.tier = plan::kBestEffort;
  place(placed);
  EXPECT_EQ(placed->refusal(), 503);
  EXPECT_EQ(placed->error->code, "capacity_shed");
  EXPECT_EQ(placed->error->param, "best_effort");
  // A level lasts 10 s.
  EXPECT_GE(placed->error->retry_after.value(), std::chrono::seconds(8));
  EXPECT_LE(placed->error->retry_after.value(), std::chrono::seconds(12));
  EXPECT_EQ(place()->worker(), "a");
}

TEST_F(DispatcherTest, ALevelRefusesTiersOfPinnedRequests) {
  add("a", 4);
  dispatcher_.set_level(plan::kDegradationLevels[2].setting);
  for (const std::size_t tier : {plan::kBestEffort, plan::kPremium}) {
    const Placed placed = make();
    placed->job.tier = tier;
    placed->job.pinned_to = "a";
    place(placed);
    EXPECT_EQ(placed->refusal(), tier == plan::kPremium ? 0 : 503);
  }
}

// Meanwhile it looks for another set each second.
TEST_F(DispatcherTest, ARequestThatWaitsDuringAnOutageStaysAdmitted) {
  const WorkerPtr worker = add("a", 4);
  worker->is_reachable = false;
  dispatcher_.on_change();
  const Placed placed = make();
  placed->job.tier = plan::kBestEffort;
  place(placed);
  dispatcher_.set_level(plan::kDegradationLevels[4].setting);
  const auto age = [&] {
    return dispatcher_.queued({"m", ""}).oldest_age.value_or(base::Duration::max());
  };
  loop_.run_until([&] { return placed->is_over || age() > std::chrono::milliseconds(2100); });
  EXPECT_FALSE(placed->is_over);
  worker->is_reachable = true;
  dispatcher_.on_change();
  loop_.run_ready();
  EXPECT_EQ(placed->worker(), "a");
}

TEST_F(DispatcherTest, ARequestThatMovesToAnotherSetStaysAdmitted) {
  const WorkerPtr worker = add("a", 4);
  worker->is_reachable = false;
  dispatcher_.on_change();
  const Placed placed = make();
  placed->job.tier = plan::kBestEffort;
  place(placed);
  dispatcher_.set_level(plan::kDegradationLevels[4].setting);
  add("b", 4, "other");
  workers_.set_weights("m", route::CardWeights{{"", 1}, {"other", 1}});
  dispatcher_.on_change();
  loop_.run_until([&] { return placed->is_over; });
  EXPECT_EQ(placed->worker(), "b");
}

TEST_F(DispatcherTest, ARequestWhoseOnlyWorkerHasLeftIsUnknown) {
  add("a", 4);
  const WorkerPtr b = add("b");
  const Placed running = make();
  running->job.pinned_to = "b";
  place(running);
  const Placed waiting = make();
  waiting->job.pinned_to = "b";
  place(waiting);
  EXPECT_FALSE(waiting->is_over);
  workers_.remove("b");
  dispatcher_.on_change();
  loop_.run_until([&] { return waiting->is_over; });
  EXPECT_EQ(waiting->refusal(), 404);
}

TEST_F(DispatcherTest, ADeadlineThatPassesWithoutASetIsATimeout) {
  add("a");
  workers_.set_weights("m", route::CardWeights{{"", 0}});
  dispatcher_.on_change();
  const Placed placed = make();
  placed->job.deadline = base::Deadline::after(std::chrono::milliseconds(50));
  place(placed);
  loop_.run_until([&] { return placed->is_over; });
  EXPECT_EQ(placed->refusal(), 504);
}

TEST_F(DispatcherTest, ADeadlineThatPassesInTheQueueIsATimeout) {
  add("a");
  place();
  const Placed placed = make();
  placed->job.deadline = base::Deadline::after(std::chrono::milliseconds(1));
  place(placed);
  loop_.run_until([&] { return placed->is_over; });
  EXPECT_EQ(placed->refusal(), 504);
  EXPECT_EQ(placed->error->code, "timeout");
}

TEST_F(DispatcherTest, AKilledRequestLeavesTheQueue) {
  add("a");
  const Placed first = place();
  const Placed second = place();
  const Placed third = place();
  dispatcher_.kill(second->job);
  loop_.run_ready();
  EXPECT_TRUE(second->is_over);
  EXPECT_NE(second->refusal(), 0);
  release(first);
  EXPECT_EQ(third->worker(), "a");
}

TEST_F(DispatcherTest, ARequestThatEveryWorkerRefusesDoesNotWait) {
  add("a")->refused[{"m", route::Api::kChat}] = base::Deadline::Clock::now();
  const WorkerPtr b = add("b");
  const Placed first = place();
  EXPECT_EQ(first->worker(), "b");
  release(first);
  b->refused[{"m", route::Api::kChat}] = base::Deadline::Clock::now();
  const Placed placed = place();
  EXPECT_EQ(placed->refusal(), 502);
  EXPECT_EQ(placed->error->code, "worker_misconfigured");
  EXPECT_FALSE(placed->error->should_retry);
  // It is tried again after a time.
  b->refused.begin()->second -= std::chrono::minutes(1);
  dispatcher_.on_tick();
  EXPECT_EQ(place()->worker(), "b");
}

class SmallQueue : public DispatcherTest {
 protected:
  static DispatchOptions two_requests() {
    DispatchOptions options = in_order();
    options.queue.requests = 2;
    options.overload_status = 529;
    return options;
  }
  SmallQueue() : DispatcherTest(two_requests()) {}
  Placed place_as(std::size_t tier) {
    Placed placed = make();
    placed->job.tier = tier;
    place(placed);
    return placed;
  }
};

TEST_F(SmallQueue, RefusesWhatDoesNotFit) {
  add("a");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(place()->refusal(), 0);
  const Placed placed = place();
  EXPECT_EQ(placed->refusal(), 529);
  EXPECT_EQ(placed->error->code, "queue_full");
}

TEST_F(SmallQueue, RefusesRequestsForOneWorkerBeyondItsLimit) {
  add("a");
  const auto place_pinned = [this] {
    Placed placed = make();
    placed->job.pinned_to = "a";
    place(placed);
    return placed;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(place_pinned()->refusal(), 0);
  const Placed placed = place_pinned();
  EXPECT_EQ(placed->refusal(), 529);
  EXPECT_EQ(placed->error->code, "queue_full");
  const Placed again = make();
  again->job.pinned_to = "a";
  again->job.is_admitted = true;
  place(again);
  EXPECT_FALSE(again->is_over);
}

TEST_F(SmallQueue, AHigherTierReplacesALowerOne) {
  add("a");
  place();
  const Placed kept = place_as(plan::kBestEffort);
  const Placed removed = place_as(plan::kBestEffort);
  const Placed premium = place_as(plan::kPremium);
  EXPECT_FALSE(premium->is_over);
  EXPECT_FALSE(kept->is_over);
  EXPECT_EQ(removed->refusal(), 529);
  EXPECT_EQ(removed->error->param, "best_effort");
}

/// The worker a, whose set has all requests, and the worker b, whose set has weight 0.
class UnequalSets : public DispatcherTest {
 protected:
  static DispatchOptions with(base::Duration takeover, bool uses_unweighted_sets) {
    DispatchOptions options = in_order();
    options.takeover = takeover;
    options.uses_unweighted_sets = uses_unweighted_sets;
    return options;
  }
  explicit UnequalSets(const DispatchOptions& options = with(std::chrono::hours(1), true))
      : DispatcherTest(options) {}

  void set_weights(double a, double b) {
    workers_.set_weights("m", route::CardWeights{{"card-a", a}, {"card-b", b}});
    dispatcher_.on_change();
    loop_.run_ready();
  }
  void set_reachable(const WorkerPtr& worker, bool is_reachable) {
    worker->is_reachable = is_reachable;
    dispatcher_.on_change();
    loop_.run_ready();
  }

  WorkerPtr a_ = add("a", 10, "card-a");
  WorkerPtr b_ = add("b", 10, "card-b");
};

TEST_F(UnequalSets, ASetOfWeight0GetsNothing) {
  set_weights(1, 0);
  EXPECT_EQ(place()->worker(), "a");
  set_reachable(a_, false);
  const Placed waiting = place();
  EXPECT_FALSE(waiting->is_over);
  set_reachable(a_, true);
  EXPECT_EQ(waiting->worker(), "a");
}

TEST_F(UnequalSets, ASetIsLoggedOnceWhenItGetsWeight0) {
  const StderrText log;
  set_weights(1, 0);
  EXPECT_EQ(log.text(), "") << "it had weight 0 before";
  add("c", 10, "card-c");
  dispatcher_.on_change();
  const std::string c = "fo: warning: model 'm': the set with card 'card-c' has weight 0\n";
  EXPECT_EQ(log.text(), c);
  set_weights(0, 1);
  dispatcher_.on_change();
  EXPECT_EQ(log.text(), c + "fo: warning: model 'm': the set with card 'card-a' has weight 0\n");
}

TEST_F(UnequalSets, WhereAllHaveWeight0ARequestWaitsForAWeight) {
  set_weights(0, 0);
  const Placed first = place();
  const Placed second = place();
  EXPECT_FALSE(first->is_over);
  set_weights(0, 1);
  EXPECT_EQ(first->worker(), "b");
  EXPECT_EQ(second->worker(), "b");
}

TEST_F(UnequalSets, APinnedRequestGoesToItsWorkerWhateverTheWeights) {
  set_weights(1, 0);
  const Placed placed = make();
  placed->job.pinned_to = "b";
  place(placed);
  EXPECT_EQ(placed->worker(), "b");
}

TEST_F(UnequalSets, ARequestThatWaitsForAWeightIsRefusedInTheEnd) {
  DispatchOptions options = in_order();
  options.queue.timeout = base::Duration(0);
  dispatcher_.set_options(options);
  set_weights(0, 0);
  const Placed placed = make();
  place(placed);
  EXPECT_EQ(placed->refusal(), 503);
  EXPECT_EQ(placed->error->message, "model 'm': each set of its workers has weight 0");
  EXPECT_TRUE(placed->error->retry_after.has_value());
}

class TakeoverAtOnce : public UnequalSets {
 protected:
  TakeoverAtOnce() : UnequalSets(with(base::Duration(0), true)) {}
};

TEST_F(TakeoverAtOnce, ASetOfWeight0TakesOverAndReturnsItsPlace) {
  set_weights(1, 0);
  EXPECT_EQ(place()->worker(), "a");
  const StderrText logged;
  set_reachable(a_, false);
  const Placed placed = place();
  loop_.run_until([&] { return placed->is_over; });
  EXPECT_EQ(placed->worker(), "b");
  const Placed another = place();
  loop_.run_until([&] { return another->is_over; });
  EXPECT_EQ(another->worker(), "b");
  set_reachable(a_, true);
  EXPECT_EQ(place()->worker(), "a");
  EXPECT_EQ(
      logged.text(),
      "fo: warning: model 'm': no set with a weight above 0 is usable: the set with card 'card-b' "
      "takes over\n");
}

TEST_F(TakeoverAtOnce, AlsoWhereAllHaveWeight0) {
  set_weights(0, 0);
  const Placed placed = place();
  loop_.run_until([&] { return placed->is_over; });
  EXPECT_NE(placed->worker(), "");
}

class StrictSets : public UnequalSets {
 protected:
  StrictSets() : UnequalSets(with(base::Duration(0), false)) {}
};

TEST_F(StrictSets, ASetOfWeight0NeverTakesOver) {
  set_weights(0, 0);
  const Placed without_weights = place();
  for (int look = 0; look < 3; ++look) set_reachable(b_, true);
  EXPECT_FALSE(without_weights->is_over);
  set_weights(1, 0);
  EXPECT_EQ(without_weights->worker(), "a");
  set_reachable(a_, false);
  const Placed placed = place();
  EXPECT_FALSE(placed->is_over);
}

class FewWithoutASet : public UnequalSets {
 protected:
  static DispatchOptions two_requests() {
    DispatchOptions options = with(std::chrono::hours(1), true);
    options.queue.requests = 2;
    return options;
  }
  FewWithoutASet() : UnequalSets(two_requests()) {}
};

TEST_F(FewWithoutASet, TheirNumberHasTheLimitOfAQueue) {
  set_weights(0, 0);
  EXPECT_FALSE(place()->is_over);
  EXPECT_FALSE(place()->is_over);
  EXPECT_EQ(place()->refusal(), 503);
}

TEST_F(DispatcherTest, NewOptionsAreForTheNextRequestsAndTheNextChoices) {
  add("a");
  const Placed first = place();
  const Placed waits = place();
  DispatchOptions options = in_order();
  options.queue.requests = 1;
  options.overload_status = 529;
  dispatcher_.set_options(options);
  dispatcher_.on_change();
  EXPECT_EQ(place()->refusal(), 529);
  release(first);
  loop_.run_ready();
  EXPECT_EQ(waits->worker(), "a");
}

}  // namespace
}  // namespace fo::test
