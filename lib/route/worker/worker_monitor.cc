#include "route/worker/worker_monitor.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/strong.h"
#include "base/units.h"
#include "fleet/engine_query.h"
#include "http/connection.h"
#include "json/object.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/log.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

constexpr base::ByteCount kMaxModelsBytes = base::kMiB;
constexpr base::Duration kWithoutMetrics = std::chrono::minutes(1);

enum class Check {
  kAnswered,
  kOut,    // it cannot be used
  kEnded,  // it refuses connections, or another engine has its address
  kLate,
};

}  // namespace

ServedModels read_models(std::string_view answer) {
  ServedModels models;
  const auto object = fo::json::find_object(answer, kMaxModelsBytes);
  const nlohmann::json* data = object ? fo::json::find(*object, "data") : nullptr;
  if (data == nullptr || !data->is_array()) return models;
  std::ptrdiff_t own = 0;
  for (const nlohmann::json& model : *data) {
    const nlohmann::json* id = fo::json::find(model, "id");
    if (id == nullptr || !id->is_string()) continue;
    // vLLM names the model of an adapter as its parent.
    const bool is_adapter = fo::json::find(model, "parent") != nullptr;
    std::vector<std::string>& names = models.names;
    names.insert(is_adapter ? names.end() : names.begin() + own++, id->get<std::string>());
  }
  const nlohmann::json* length =
      data->empty() ? nullptr : fo::json::find(data->front(), "max_model_len");
  const bool is_length = length != nullptr && length->is_number_unsigned();
  if (is_length) models.context_length = length->get<std::uint64_t>();
  return models;
}

// What ends the pause between two checks of a worker.
struct WorkerMonitor::Wake {
  explicit Wake(const boost::asio::any_io_executor& executor) : event(executor) {}
  void notify() {
    is_due = true;
    event.notify();
  }
  loop::Event event;
  /// The worker is to be checked again, although a check may have begun before.
  bool is_due = false;
};

struct WorkerMonitor::State {
  boost::asio::any_io_executor executor;
  Options options;
  OnChange on_change;
  OnEnded on_ended;
  std::map<std::string, std::shared_ptr<Wake>> wakes;

  void notify(const std::string& id) {
    if (const auto found = wakes.find(id); found != wakes.end()) found->second->notify();
  }

  /// Checks the worker once. A late answer changes nothing, because it may mean load; neither does
  /// a lack of descriptors in this process.
  awaitable<Check> check(WorkerPtr worker);
  void set_reachable(const WorkerPtr& worker, bool is_reachable, const std::string& reason);
  bool take_models(const WorkerPtr& worker, const ServedModels& models);
};

bool WorkerMonitor::State::take_models(const WorkerPtr& worker, const ServedModels& models) {
  const std::vector<std::string>& names = models.names;
  if (names.empty()) return false;
  if (worker->model.empty()) worker->model = names.front();
  if (std::find(names.begin(), names.end(), worker->model) == names.end()) return false;
  // A card from the registry, which has a name, contains more facts.
  const bool has_card = worker->facts && !worker->facts->name.empty();
  const std::uint64_t known = worker->facts ? worker->facts->context_length : 0;
  if (!has_card && known != models.context_length) {
    auto facts = std::make_shared<fleet::Card>();
    facts->context_length = models.context_length;
    worker->facts = std::move(facts);
  }
  std::set<std::string> others(names.begin(), names.end());
  others.erase(worker->model);
  if (others != worker->other_models) {
    worker->other_models = std::move(others);
    on_change(worker);
  }
  return true;
}

void WorkerMonitor::State::set_reachable(const WorkerPtr& worker, bool is_reachable,
                                         const std::string& reason) {
  // The first failure of a worker that was never reached is a change, too.
  const bool is_first_failure = !is_reachable && !worker->unreachable_since;
  if (worker->is_reachable == is_reachable && !is_first_failure) return;
  worker->is_reachable = is_reachable;
  worker->unavailability.reset();
  if (is_reachable) {
    worker->is_known = true;
    worker->unreachable_since.reset();
    worker->refused.clear();
    worker->lacks_token_ids = worker->refuses_usage = false;
    ++worker->incarnation;
    os::log(os::LogLevel::kInfo, "worker {}: serves {}", base::quoted(worker->name),
            base::quoted(worker->model));
  } else {
    worker->unreachable_since = Clock::now();
    os::log(os::LogLevel::kWarning, "worker {}: out of rotation: {}", base::quoted(worker->name),
            reason);
  }
  on_change(worker);
}

awaitable<Check> WorkerMonitor::State::check(WorkerPtr worker) {
  const Deadline deadline = Deadline::after(options.timeout);
  std::string reason;
  bool has_ended = false;
  try {
    auto connection = co_await http::Connection::open(worker->origin, deadline, "health check");
    std::string target = worker->base_path + "/health";
    const fleet::EnginePage health = co_await fleet::get_page(
        *connection, std::move(target), options.headers, kMaxModelsBytes, deadline);
    if (health.status == 200) {
      // An engine may close the connection after each answer.
      if (!connection->is_reusable()) {
        connection = co_await http::Connection::open(worker->origin, deadline, "health check");
      }
      target = worker->base_path + "/v1/models";
      const fleet::EnginePage listed = co_await fleet::get_page(
          *connection, std::move(target), options.headers, kMaxModelsBytes, deadline);
      const ServedModels models = listed.status == 200 ? read_models(listed.text) : ServedModels();
      if (take_models(worker, models)) co_return Check::kAnswered;
      has_ended = !models.names.empty();
      reason = "/v1/models does not name the model " + base::quoted(worker->model);
      // The next check gives the worker the model of the engine that answers now.
      if (has_ended && worker->reports_model) worker->model.clear();
    } else {
      reason = "/health: status " + std::to_string(health.status);
    }
  } catch (const base::Error& error) {
    const bool is_late = error.status() == base::ExitStatus::kTryAgain;
    if (is_late || base::is_exhausted(error.code())) co_return Check::kLate;
    has_ended = error.code() == std::errc::connection_refused;
    reason = error.what();
  }
  set_reachable(worker, false, reason);
  co_return has_ended ? Check::kEnded : Check::kOut;
}

awaitable<void> WorkerMonitor::run(std::shared_ptr<State> state, WorkerPtr worker,
                                   std::shared_ptr<Wake> wake) {
  const Options& options = state->options;
  std::optional<TimePoint> stale_since;
  while (!worker->is_removed) {
    const bool was_known = worker->is_known;
    wake->is_due = false;
    const Check result = co_await state->check(worker);
    if (worker->is_removed) break;
    if (result == Check::kAnswered) state->set_reachable(worker, true, {});
    if (!worker->is_stale) {
      stale_since.reset();
    } else if (!stale_since) {
      stale_since = Clock::now();
    }
    const bool is_forgotten = stale_since && Clock::now() - *stale_since >= options.stale;
    if (is_forgotten) {
      os::log(os::LogLevel::kWarning, "worker {}: not used any more, because it was stale for {}",
              base::quoted(worker->name), base::format_duration(options.stale));
    }
    const bool is_doubtful = worker->is_stale && result == Check::kEnded;
    const bool is_takeover_over =
        worker->unreachable_since && Clock::now() - *worker->unreachable_since >= options.takeover;
    if (is_forgotten || (is_doubtful && was_known && is_takeover_over)) {
      state->on_ended(worker);
      break;
    }
    const bool may_have_ended = is_doubtful && !was_known;
    if (std::exchange(worker->may_have_ended, may_have_ended) != may_have_ended) {
      state->on_change(worker);
    }
    if (worker->is_reachable && !wake->is_due) {
      co_await wake->event.wait(Deadline::after(options.check));
      continue;
    }
    if (worker->is_reachable) {
      co_await loop::pause_for(options.retry);
      continue;
    }
    if (!worker->unreachable_since) {
      worker->unreachable_since = Clock::now();
      state->on_change(worker);
    }
    const bool is_long = Clock::now() - *worker->unreachable_since > options.slow_after;
    co_await loop::pause_for(is_long ? options.slow_retry : options.retry);
  }
  // Meanwhile, the id may be that of another worker.
  const auto found = state->wakes.find(worker->id);
  if (found != state->wakes.end() && found->second == wake) state->wakes.erase(found);
}

// The queue that one query finds may be requests that have just arrived, so the shorter one of two
// queues counts.
awaitable<void> WorkerMonitor::watch_queue(std::shared_ptr<State> state, WorkerPtr worker) {
  const Options& options = state->options;
  TimePoint next{};
  double last = 0;
  for (;;) {
    co_await loop::pause_for(options.load);
    if (worker->is_removed) co_return;
    const double before = std::exchange(last, 0);
    const std::uint64_t requests = worker->requests;
    if (requests == 0 || !worker->is_reachable || Clock::now() < next) continue;
    std::optional<fleet::EngineLoad> load;
    try {
      const Deadline deadline = Deadline::after(options.load_timeout);
      load = co_await fleet::query_engine_load(worker->origin, worker->base_path, options.headers,
                                               deadline);
    } catch (const base::Error&) {
      continue;
    }
    if (!load || !load->running || !load->waiting) {
      next = Clock::now() + kWithoutMetrics;
      continue;
    }
    last = *load->waiting;
    // The engine counted its requests at a time between these two counts.
    const std::uint64_t ours = std::max(requests, worker->requests);
    const double waiting = std::min(before, last);
    if (worker->slot_limit.on_queue(worker->slots, ours, *load->running, waiting)) {
      state->on_change(worker);
    }
  }
}

WorkerMonitor::WorkerMonitor(boost::asio::any_io_executor executor, Options options,
                             OnChange on_change, OnEnded on_ended)
    : state_(std::make_shared<State>(State{.executor = std::move(executor),
                                           .options = std::move(options),
                                           .on_change = std::move(on_change),
                                           .on_ended = std::move(on_ended),
                                           .wakes = {}})) {}

// The coroutines refer to the options in the state, so they use the new ones.
void WorkerMonitor::set_options(Options options) { state_->options = std::move(options); }

void WorkerMonitor::watch(const WorkerPtr& worker) {
  const auto wake = std::make_shared<Wake>(state_->executor);
  state_->wakes[worker->id] = wake;
  loop::spawn(state_->executor, run(state_, worker, wake));
  loop::spawn(state_->executor, watch_queue(state_, worker));
}

void WorkerMonitor::on_refused(const WorkerPtr& worker, const std::string& reason) {
  state_->set_reachable(worker, false, reason);
  state_->notify(worker->id);
}

void WorkerMonitor::on_fault(const WorkerPtr& worker) { state_->notify(worker->id); }

void WorkerMonitor::on_removed(const WorkerPtr& worker) { state_->notify(worker->id); }

}  // namespace fo::route
