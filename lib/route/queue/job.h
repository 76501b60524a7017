// A request in the router, from its body to the end of its answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "loop/backoff.h"
#include "route/answer/exchange.h"
#include "route/answer/upstream_call.h"
#include "route/metrics.h"
#include "route/request/client_request.h"
#include "route/worker/workers.h"

namespace fo::http {
class Reply;
}

namespace fo::route {

/// The status under which a request is counted whose client closed the connection, as nginx does.
inline constexpr int kClientGoneStatus = 499;

struct Job {
  Job(std::string its_id, ClientRequest its_request, const Exchange::Limits& limits)
      : id(std::move(its_id)),
        request(std::move(its_request)),
        exchange(request, limits),
        prompt_tokens(request.prompt_tokens) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::string id;
  const ClientRequest request;
  Exchange exchange;
  std::size_t tier = 0;
  /// The SHA-256 of its client's key; empty without rules for keys.
  std::string key;
  /// The number of tokens of its prompt: the request's estimate until the engine reports it.
  std::uint64_t prompt_tokens;
  /// Tokens that count towards the client's limits until the request ends.
  std::uint64_t admitted_tokens = 0;
  TimePoint received = base::Deadline::Clock::now();
  /// How long workers had it.
  base::Duration at_workers{};
  /// When it would have been received if it had only waited.
  [[nodiscard]] TimePoint waiting_since() const { return received + at_workers; }
  /// When its answer began; nullopt if it has not.
  std::optional<TimePoint> first_token;
  /// Covers all attempts.
  base::Deadline deadline = base::Deadline::never();

  /// The model that is asked for, by any of its names.
  std::string model;
  SetKey set;
  WorkerPtr worker;
  /// Tokens of its prompt and its expected answer, for which the worker's cache needs room.
  std::uint64_t tokens = 0;
  /// prefix_hashes() of its prompt.
  std::vector<std::uint64_t> prefixes;
  /// Its number in the dispatcher; 0 before it was placed.
  std::uint64_t number = 0;
  /// The job has waited for a worker: it was admitted at the level of that time.
  bool is_admitted = false;
  /// The job has had a worker.
  bool had_worker = false;
  /// Lease of the worker's health, for a worker in probation.
  std::optional<std::uint64_t> lease;
  UpstreamCall* call = nullptr;
  /// Set while its client does not accept what it is sent.
  http::Reply* blocked_reply = nullptr;
  TimePoint blocked_since{};
  /// Attempts that were sent.
  unsigned attempts = 0;
  /// The largest number of tokens that its answer has had. A token that is generated again counts
  /// once.
  std::uint64_t progress = 0;
  /// Attempts that failed since the last progress.
  unsigned fruitless = 0;
  /// The last failure of a worker.
  struct Failure {
    /// The worker's `incarnation` when it was asked.
    std::uint64_t incarnation = 0;
    /// Another attempt had failed before. There was no progress between these failures, and none
    /// since.
    bool is_fruitless = false;
    /// Until this time, the worker does not get the job again.
    TimePoint until{};
  };
  /// Workers that failed the job, by id: it goes to another worker if there is one.
  std::map<std::string, Failure> failed_on;
  /// Set when the worker fails after a part of the answer was delivered. Until this deadline, the
  /// job waits for a worker of the same set that can continue the answer. A worker in `failed_on`
  /// with a fruitless failure gets it only if it has arrived again since.
  std::optional<base::Deadline> resume_until;
  /// There was progress since `resume_until` was set.
  bool has_progressed = false;
  TimePoint lost_at{};
  LossReason loss_reason = LossReason::kBroken;
  /// The group of the worker that it lost.
  std::string lost_group;
  unsigned resumes = 0;
  /// The id of the only worker that can answer the job; empty: any can.
  std::string pinned_to;
  bool is_killed = false;
  /// Why its call is cut, unless the job is killed.
  enum class CutReason { kNothing, kMove, kConviction };
  CutReason cut_reason = CutReason::kNothing;
  /// The id of the worker that has prepared to continue the job, and gets it if it has room.
  std::string preferred;
  /// The id of the KV cache that `preferred` has pulled; empty: none.
  std::string snapshot;
  /// When another worker began to prepare to continue the job. Set until that worker brings a
  /// token; nullopt: the job does not move.
  std::optional<TimePoint> moving_since;
  /// The ids of the workers that could not prepare to continue the job, and the time from which the
  /// next one may be asked.
  std::set<std::string> failed_targets;
  std::optional<loop::Backoff> move_backoff;
  TimePoint next_move{};
  /// Status of the client's answer; kClientGoneStatus until it is known.
  int status = kClientGoneStatus;
  std::uint64_t bytes_sent = 0;
  /// The reason with which the dispatcher refuses the job, if it does.
  RefusalReason refusal_reason = RefusalReason::kCapacity;
};

}  // namespace fo::route
