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
  /// It has had a worker before.
  bool has_waited = false;
  /// Lease of the worker's health, for a worker in probation.
  std::optional<std::uint64_t> lease;
  UpstreamCall* call = nullptr;
  /// Attempts that were sent.
  unsigned attempts = 0;
  /// The most tokens of its answer that it has had. A token that is generated again counts once.
  std::uint64_t progress = 0;
  /// Attempts that failed since the last progress.
  unsigned fruitless = 0;
  /// The last failure of a worker.
  struct Failure {
    /// The worker's `arrivals` when it was asked.
    std::uint64_t arrivals = 0;
    /// Another attempt had failed before, and there was no progress between both, nor since.
    bool is_fruitless = false;
    /// Until then, the worker does not get it again.
    TimePoint until{};
  };
  /// Workers that failed it, by id: it goes to another one if there is one.
  std::map<std::string, Failure> failed_on;
  /// Set once a part of its answer was delivered and its worker failed: until then, a worker of the
  /// same set may continue the answer, unless its last failure was a fruitless one and it has not
  /// arrived again since.
  std::optional<base::Deadline> resume_until;
  /// There was progress since that was set.
  bool has_progressed = false;
  TimePoint lost_at{};
  LossReason lost_for = LossReason::kBroken;
  /// The group of the worker that it lost.
  std::string lost_group;
  unsigned resumes = 0;
  /// The only worker that can answer it, by id; empty: any.
  std::string pinned_to;
  bool is_killed = false;
  /// Why its call is cut, apart from that.
  enum class CutFor { kNothing, kMove, kConviction };
  CutFor cut_for = CutFor::kNothing;
  /// The worker that has prepared to continue it, by id: it is to get it.
  std::string preferred;
  /// The KV cache that this worker has pulled, by its id there; empty: none.
  std::string snapshot;
  /// Since when another worker prepares to continue it, until that brings a token; nullopt: it does
  /// not move.
  std::optional<TimePoint> moving_since;
  /// The workers, by id, that could not prepare to continue it, and when the next one is asked.
  std::set<std::string> failed_targets;
  std::optional<loop::Backoff> move_backoff;
  TimePoint next_move{};
  /// Status of the client's answer; kClientGoneStatus until it is known.
  int status = kClientGoneStatus;
  std::uint64_t bytes_sent = 0;
  /// The reason with which the dispatcher refuses it, if it does.
  RefusedFor refused_for = RefusedFor::kCapacity;
};

}  // namespace fo::route
