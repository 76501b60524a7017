#include "route/moves.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "http/client.h"
#include "os/log.h"
#include "route/answer/outcome.h"

namespace fo::route {
namespace {

using base::Deadline;
using boost::asio::awaitable;
using Clock = Deadline::Clock;

// The worker with the least requests that could continue the job.
WorkerPtr find_target(const RouterParts& parts, const Job& job) {
  WorkerPtr target;
  for (const WorkerPtr& worker : parts.workers.set(job.set)) {
    const bool is_usable = worker != job.worker && worker->weight > 0 && !worker->is_plain &&
                           worker->requests < worker->slots;
    if (is_usable && (!target || worker->requests < target->requests)) target = worker;
  }
  return target;
}

// Lets the next worker compute what is so far, and cuts the job's present call.
awaitable<void> move(std::shared_ptr<RouterParts> parts, std::string id, WorkerPtr target,
                     http::FetchOptions warming, Deadline deadline) {
  std::string failure;
  try {
    const std::string url = target->url + "/v1/completions";
    const http::Response answer = co_await http::async_fetch("POST", url, deadline, warming);
    if (answer.status != 200) failure = "status " + std::to_string(answer.status);
  } catch (const base::Error& error) {
    failure = error.what();
  }
  const auto found = parts->jobs.find(id);
  if (found == parts->jobs.end()) co_return;
  Job& job = *found->second;
  job.is_moving = false;
  if (!failure.empty()) {
    os::log(os::LogLevel::kWarning, "request {}: not moved to worker {}: {}", base::quoted(id),
            base::quoted(target->name), failure);
    co_return;
  }
  if (job.call == nullptr) co_return;
  job.preferred = target->id;
  job.cut_for = Job::CutFor::kMove;
  job.call->cut();
}

void begin_move(const std::shared_ptr<RouterParts>& parts, Job& job) {
  WorkerPtr target = find_target(*parts, job);
  if (!target) return;
  http::FetchOptions warming;
  warming.body = job.exchange.resumption().warming_body();
  warming.headers = parts->worker_headers(job.id);
  warming.tls = target->origin.tls;
  job.is_moving = true;
  const Transcript& transcript = job.exchange.resumption().transcript();
  const Deadline deadline = Deadline::after(first_token_limit(
      parts->options.times.first_token, transcript.prompt().size() + transcript.tokens()));
  boost::asio::co_spawn(parts->executor,
                        move(parts, job.id, std::move(target), std::move(warming), deadline),
                        boost::asio::detached);
}

bool can_move(const RouterParts& parts, const Job& job) {
  const bool may_move = parts.options.resume.enabled && job.exchange.has_part() &&
                        job.exchange.asked() != Exchange::Asked::kAsGiven;
  return may_move && job.exchange.resume_refusal().empty();
}

}  // namespace

void move_requests(const std::shared_ptr<RouterParts>& parts) {
  std::map<const Worker*, std::uint64_t> left;
  for (const auto& [id, worker] : parts->workers.all()) {
    const bool is_leaving = worker->is_drained || worker->life == fleet::Life::kDraining;
    if (!is_leaving) {
      worker->leaving_since.reset();
    } else if (!worker->leaving_since) {
      worker->leaving_since = Clock::now();
    } else if (Clock::now() - *worker->leaving_since >= parts->options.resume.drain) {
      left[worker.get()] = ResumeBudget::max_running(worker->slots);
    }
  }
  for (const auto& [id, job] : parts->jobs) {
    if (job->call == nullptr || job->cut_for != Job::CutFor::kNothing) continue;
    if (job->worker->is_convicted()) {
      job->cut_for = Job::CutFor::kConviction;
      job->call->cut();
      continue;
    }
    const auto moves = left.find(job->worker.get());
    if (moves == left.end() || moves->second == 0) continue;
    if (!job->is_moving && can_move(*parts, *job)) begin_move(parts, *job);
    if (job->is_moving) --moves->second;
  }
}

}  // namespace fo::route
