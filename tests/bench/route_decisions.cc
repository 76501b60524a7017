// The decisions of a router: which request of a queue is next, and which worker gets it. One
// decision includes everything that comes with it: a new request takes its place in the queue, and
// one on a worker ends. Usage: route_decisions [--json FILE] [--quick] [RUNS]
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "report.h"
#include "route/queue/choice.h"
#include "route/queue/set_queue.h"

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

void measure(const std::string& name, route::Policy policy, const Size& size, std::size_t decisions,
             std::size_t runs, bench::Report& report) {
  std::vector<double> microseconds;
  for (std::size_t run = 0; run < runs; ++run) {
    FullSet set(policy, size);
    const double seconds = bench::seconds_of([&] {
      for (std::size_t i = 0; i < decisions; ++i) set.decide();
    });
    microseconds.push_back(seconds / static_cast<double>(decisions) * 1e6);
  }
  const std::string what = "decision '" + name + "', " + std::to_string(size.workers) +
                           " workers, " + std::to_string(size.queued) + " queued";
  report.row(what, "us", {"fo-route", microseconds}, {}, bench::value_at_most(20));
  std::printf("%s: %.2f us\n", what.c_str(), bench::median(microseconds));
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "route_decisions", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const std::size_t runs = bench::parse_runs(arguments, arguments.quick ? 1 : 5);
        const Size size = arguments.quick ? Size{20, 100} : Size{1000, 10'000};
        const std::size_t decisions = arguments.quick ? 1000 : 200'000;
        measure("prefix", route::Policy::kPrefix, size, decisions, runs, report);
        measure("least", route::Policy::kLeast, size, decisions, runs, report);
        measure("round-robin", route::Policy::kRoundRobin, size, decisions, runs, report);
      });
}
