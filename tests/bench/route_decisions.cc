// The decisions of a router: which request of a queue is next, and which worker gets it. One
// decision includes everything that comes with it: a new request takes its place in the queue, and
// one on a worker ends. Also those of the dispatcher, whose requests are coroutines, among workers
// that are paired for prefill and decode, and what a change of one worker costs there.
// Usage: route_decisions [--json FILE] [--quick] [RUNS]
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "loop/spawn.h"
#include "report.h"
#include "route/queue/choice.h"
#include "route/queue/dispatcher.h"
#include "route/queue/job.h"
#include "route/queue/set_queue.h"
#include "route/worker/workers.h"

namespace {

using namespace fo;

struct Size {
  std::size_t workers;
  std::size_t queued;
};

// A set whose workers are all full, and a queue.
class FullSet {
 public:
  FullSet(route::Policy policy, const Size& size)
      : choice_(policy, 1), queue_({.requests = 2 * size.queued, .tokens = UINT64_MAX / 2}) {
    for (std::size_t worker = 0; worker < size.workers; ++worker) {
      choice_.set_worker(worker, {.slots = kSlots, .kv_tokens = kSlots * kMaxTokens});
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        running_.push_back({worker, kMaxTokens});
        choice_.begin(worker, {.tokens = kMaxTokens});
      }
    }
    for (std::size_t i = 0; i < size.queued; ++i) arrive();
  }

  void decide() {
    now_ += std::chrono::microseconds(20);
    Running& ended = running_[random_() % running_.size()];
    choice_.end(ended.worker, ended.tokens);
    const auto head = queue_.head();
    const std::vector<std::uint64_t> prefixes{head->id % 5000, head->id % 20'000 + 5000};
    const route::Candidate request{.tokens = head->tokens, .prefixes = prefixes};
    const auto worker = choice_.choose(request);
    if (!worker) throw base::Error(base::ExitStatus::kSoftware, "choose a worker: no room");
    queue_.take(now_);
    choice_.begin(*worker, request);
    ended = {*worker, request.tokens};
    arrive();
  }

 private:
  static constexpr std::size_t kSlots = 16;
  static constexpr std::uint64_t kMaxTokens = 4096;

  struct Running {
    route::WorkerNumber worker;
    std::uint64_t tokens;
  };

  void arrive() {
    // Nobody's deadline is so early that the queue would refuse the request.
    const base::Duration deadline = now_ + std::chrono::milliseconds(20'000 + random_() % 5'000);
    queue_.add({.id = ++ids_,
                .tier = random_() % plan::kTiers,
                .tokens = 1 + random_() % kMaxTokens,
                .deadline = deadline},
               now_);
  }

  std::mt19937_64 random_{1};
  route::Choice choice_;
  route::SetQueue queue_;
  std::vector<Running> running_;
  base::Duration now_{0};
  std::uint64_t ids_ = 0;
};

// The same with the dispatcher. The workers are for decode, and each cohort of ten has one for
// prefill.
class PairedSet {
 public:
  explicit PairedSet(const Size& size)
      : dispatcher_(loop_.get_executor(), options(size), workers_, metrics_) {
    for (std::size_t i = 0; i < size.workers; ++i) {
      const std::string cohort = std::to_string(i / kCohort);
      if (i % kCohort == 0) add("prefill" + cohort, cohort, route::Role::kPrefill);
      decode_.push_back(add("decode" + std::to_string(i), cohort, route::Role::kDecode));
    }
    dispatcher_.on_change();
    jobs_.resize(size.workers * kSlots + size.queued);
    for (std::size_t i = 0; i < jobs_.size(); ++i) arrive(i);
    loop_.poll();
  }
  PairedSet(const PairedSet&) = delete;
  PairedSet& operator=(const PairedSet&) = delete;
  ~PairedSet() {
    for (const auto& job : jobs_) dispatcher_.kill(*job);
    loop_.restart();
    loop_.poll();
    for (const auto& job : jobs_) dispatcher_.release(*job);
  }

  void decide() {
    std::swap(running_[random_() % running_.size()], running_.back());
    const std::size_t ended = running_.back();
    running_.pop_back();
    dispatcher_.release(*jobs_[ended]);
    arrive(ended);
    loop_.restart();
    loop_.poll();
    if (running_.size() != decode_.size() * kSlots) {
      throw base::Error(base::ExitStatus::kSoftware, "place a request: not every slot is used");
    }
  }

  // As after a check of the worker.
  void change() {
    workers_.regroup(decode_[random_() % decode_.size()]);
    dispatcher_.on_change();
  }

 private:
  static constexpr std::size_t kCohort = 10;
  static constexpr std::size_t kSlots = 4;

  static route::DispatchOptions options(const Size& size) {
    route::DispatchOptions options;
    options.queue = {.requests = 2 * (size.queued + size.workers * kSlots),
                     .tokens = UINT64_MAX / 2,
                     .timeout = std::chrono::hours(1)};
    return options;
  }

  route::WorkerPtr add(const std::string& id, const std::string& cohort, route::Role role) {
    const auto worker = std::make_shared<route::Worker>(id, fleet::Health{});
    worker->model = kModel;
    worker->role = role;
    worker->name_space = cohort;
    worker->kv_abi = "nixl/fp8";
    worker->slots = kSlots;
    worker->is_reachable = true;
    workers_.add(worker);
    return worker;
  }

  void arrive(std::size_t number) {
    const std::uint64_t id = ++ids_;
    route::ClientRequest request;
    request.api = route::Api::kChat;
    request.prompt_tokens = 1 + random_() % 4096;
    jobs_[number] = std::make_unique<route::Job>(std::to_string(id), std::move(request),
                                                 route::Exchange::Limits{});
    route::Job& job = *jobs_[number];
    job.model = kModel;
    job.tier = random_() % plan::kTiers;
    job.prefixes = {id % 5000, id % 20'000 + 5000};
    loop::spawn(loop_, place(number));
  }
  boost::asio::awaitable<void> place(std::size_t number) {
    route::Job& job = *jobs_[number];
    co_await dispatcher_.place(job);
    if (job.worker) running_.push_back(number);
  }

  static constexpr const char* kModel = "m";
  std::mt19937_64 random_{1};
  boost::asio::io_context loop_{1};
  route::Workers workers_;
  route::Metrics metrics_;
  route::Dispatcher dispatcher_;
  std::vector<route::WorkerPtr> decode_;
  std::vector<std::unique_ptr<route::Job>> jobs_;
  std::vector<std::size_t> running_;
  std::uint64_t ids_ = 0;
};

std::string text_of(const Size& size) {
  return std::to_string(size.workers) + " workers, " + std::to_string(size.queued) + " queued";
}

// `make` returns a set, whose `step` is repeated `count` times in each run.
template <typename Make, typename Step>
void measure(const std::string& what, double aim, std::size_t count, std::size_t runs,
             bench::Report& report, const Make& make, const Step& step) {
  std::vector<double> microseconds;
  for (std::size_t run = 0; run < runs; ++run) {
    const auto set = make();
    const double seconds = bench::seconds_of([&] {
      for (std::size_t i = 0; i < count; ++i) step(*set);
    });
    microseconds.push_back(seconds / static_cast<double>(count) * 1e6);
  }
  report.row(what, "us", {"fo-route", microseconds}, {}, bench::value_at_most(aim));
  std::printf("%s: %.2f us\n", what.c_str(), bench::median(microseconds));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "route_decisions", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const std::size_t runs = bench::parse_runs(arguments, arguments.quick ? 1 : 5);
        const Size size = arguments.quick ? Size{20, 100} : Size{1000, 10'000};
        const std::size_t decisions = arguments.quick ? 1000 : 200'000;
        const auto decide = [](auto& set) { set.decide(); };
        const auto measure_policy = [&](const std::string& name, route::Policy policy) {
          measure(
              "decision '" + name + "', " + text_of(size), 20, decisions, runs, report,
              [&] { return std::make_unique<FullSet>(policy, size); }, decide);
        };
        measure_policy("prefix", route::Policy::kPrefix);
        measure_policy("least", route::Policy::kLeast);
        measure_policy("round-robin", route::Policy::kRoundRobin);
        const auto paired = [&] { return std::make_unique<PairedSet>(size); };
        measure("decision of the dispatcher, pairs, " + text_of(size), 20, decisions / 10, runs,
                report, paired, decide);
        measure("change of one worker, pairs, " + text_of(size), 1000, decisions / 200, runs,
                report, paired, [](auto& set) { set.change(); });
      });
}
