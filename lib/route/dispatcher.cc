#include "route/dispatcher.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "base/error.h"
#include "loop/event.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

// How long a waiting request stays with a set that has no usable worker before the sets are looked
// at again.
constexpr base::Duration kLook = std::chrono::seconds(1);

}  // namespace

struct Dispatcher::State {
  struct Waiting {
    explicit Waiting(Job& its_job, const boost::asio::any_io_executor& executor)
        : job(its_job), placed(executor) {}
    Job& job;
    loop::Event placed;
  };

  boost::asio::any_io_executor executor;
  Workers& workers;
  Metrics& metrics;
  std::map<SetKey, std::list<Waiting*>> queues;

  WorkerPtr choose(const Job& job) const;
  void take(Job& job, const WorkerPtr& worker);
  void pump(const SetKey& key);
};

Dispatcher::Dispatcher(boost::asio::any_io_executor executor, Workers& workers, Metrics& metrics)
    : state_(std::make_unique<State>(State{std::move(executor), workers, metrics, {}})) {}
Dispatcher::~Dispatcher() = default;

bool Dispatcher::is_usable(const SetKey& set) const {
  const Workers::Set& workers = state_->workers.set(set);
  return std::any_of(workers.begin(), workers.end(),
                     [](const WorkerPtr& worker) { return worker->is_in(); });
}

WorkerPtr Dispatcher::State::choose(const Job& job) const {
  WorkerPtr best;
  for (const WorkerPtr& worker : workers.set(job.set)) {
    if (!worker->is_in() || worker->requests >= worker->slots_now(1)) continue;
    if (job.failed_on.contains(worker->id)) continue;
    if (!best || worker->requests < best->requests) best = worker;
  }
  return best;
}

void Dispatcher::State::take(Job& job, const WorkerPtr& worker) {
  job.worker = worker;
  job.tokens = job.request.prompt_tokens;
  ++worker->requests;
  worker->tokens += job.tokens;
}

void Dispatcher::State::pump(const SetKey& key) {
  std::list<Waiting*>& queue = queues[key];
  while (!queue.empty()) {
    Waiting& first = *queue.front();
    const WorkerPtr worker = choose(first.job);
    if (!worker) return;
    queue.pop_front();
    take(first.job, worker);
    first.placed.notify();
  }
}

awaitable<std::optional<ApiError>> Dispatcher::place(Job& job) {
  State& state = *state_;
  const Deadline deadline = Deadline::after(std::chrono::seconds(30)).sooner(job.deadline);
  for (;;) {
    const auto sets = state.workers.sets_of(job.model);
    const auto usable = [this](const SetKey& key) { return is_usable(key); };
    const std::optional<SetKey> chosen = choose_set(sets, usable, false, 0);
    job.set = chosen.value_or(sets.empty() ? SetKey{} : sets.front().first);
    State::Waiting waiting(job, state.executor);
    std::list<State::Waiting*>& queue = state.queues[job.set];
    job.attempts > 0 ? queue.push_front(&waiting) : queue.push_back(&waiting);
    state.pump(job.set);
    while (!job.worker && !job.is_killed && !deadline.expired()) {
      try {
        co_await waiting.placed.wait(deadline.sooner(Deadline::after(kLook)));
      } catch (...) {
        std::erase(queue, &waiting);
        release(job);
        throw;
      }
    }
    std::erase(queue, &waiting);
    if (job.worker) co_return std::nullopt;
    co_return ApiError{.status = 503, .message = "no worker has room", .code = "overloaded"};
  }
}

void Dispatcher::release(Job& job) {
  if (!job.worker) return;
  const WorkerPtr worker = std::exchange(job.worker, nullptr);
  --worker->requests;
  worker->tokens -= job.tokens;
  state_->pump(job.set);
}

void Dispatcher::on_change() {
  for (const auto& [key, queue] : state_->queues) state_->pump(key);
}

}  // namespace fo::route
