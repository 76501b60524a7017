#include "lock/lockd_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "lock/grant.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using base::quoted;
using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

std::string describe(const std::optional<RecordedProcess>& process) {
  return process ? "process " + std::to_string(process->pid) : "a process not visible from here";
}

// Of the heartbeats of a lease that came back, the one that shows that the answer was heard.
constexpr int kHeardBy = 2;

bool contains(const std::vector<RecordedProcess>& all, const RecordedProcess& process) {
  return std::find(all.begin(), all.end(), process) != all.end();
}

}  // namespace

LockdModel::LockdModel(milliseconds reconnect_window, const LoadedState& loaded,
                       std::vector<RecordedProcess> running, const LockdTime& now,
                       std::optional<milliseconds> expiry)
    : reconnect_window_(std::max(reconnect_window, loaded.state.expiry.value_or(milliseconds(0)))),
      expiry_(expiry),
      last_expiry_(loaded.state.expiry),
      on_file_(loaded.state) {
  last_known_generation_ = on_file_.generation;
  last_generation_ = std::max(on_file_.generation, on_file_.last_generation);
  const std::string window = base::format_duration(reconnect_window_);
  const bool is_lost = loaded.kind == LoadedState::Kind::kNone && expiry_;
  if (on_file_.last_holder) {
    last_hold_ =
        Hold{*on_file_.last_holder, on_file_.generation, on_file_.granted_at, true, on_file_.token};
  }
  if (loaded.kind == LoadedState::Kind::kDamaged || is_lost) {
    // Generations from here on start where none can have been before.
    last_generation_ = next_generation({GrantContent::Kind::kDamaged, {}}, false, now.wall) - 1;
    recovery_ = Recovery{now.steady + reconnect_window_};
    warn(std::string(is_lost ? "there is no state file" : "the state file is damaged") +
         ": whoever has the lock has " + window + " to come back");
  } else if (on_file_.holder) {
    hold_ = Hold{*on_file_.holder, on_file_.generation, on_file_.granted_at, true, on_file_.token};
    recovery_ =
        Recovery{now.steady + reconnect_window_, false, on_file_.connections, std::move(running)};
    note(quoted(hold_->engine_id) + " had the lock, generation " +
         std::to_string(hold_->generation) + ": it has " + window + " to come back");
  }
  settle(now);
}

void LockdModel::acquire(ConnectionId id, const AcquireRequest& request, const LockdPeer& peer,
                         const LockdTime& now) {
  Member& member = members_[id];
  member.engine_id = request.engine_id;
  member.process = peer.process;
  member.name = peer.name.empty() ? describe(peer.process) : peer.name;
  member.token = peer.token;
  member.is_lease = peer.tie == LockdTie::kLease;
  member.has_lifeline = peer.tie != LockdTie::kConnection;
  judge(id, member, request, now);
  settle(now);
  const auto found = members_.find(id);
  // A lock that is free is granted as soon as the record that is under way is done.
  const bool is_free = !hold_ && !recovery_ && !failing_;
  if (found != members_.end() && found->second.waits && !is_free) {
    effects_.answers.emplace_back(id, waiting_answer());
  }
}

// Row by row as drawn in the header.
void LockdModel::judge(ConnectionId id, Member& member, const AcquireRequest& request,
                       const LockdTime& now) {
  const bool is_holder = hold_ && member.engine_id == hold_->engine_id;
  if (const std::optional<std::uint64_t> claim = request.generation) {
    const auto is_this = [&](const std::optional<Hold>& hold) {
      return hold && hold->engine_id == member.engine_id && hold->generation == *claim &&
             (!member.is_lease || (!hold->token.empty() && hold->token == request.token));
    };
    if (is_this(hold_)) return come_back(member);
    const bool has_token = !member.is_lease || !request.token.empty();
    const bool unknown_holder = !hold_ && recovery_ && has_token;
    const bool had_it_last = is_this(last_hold_);
    if (hold_ || !(unknown_holder || had_it_last || (*claim > last_generation_ && has_token))) {
      return refuse_claim(id, *claim);
    }
    hold_ =
        had_it_last ? *last_hold_ : Hold{member.engine_id, *claim, now.wall, true, request.token};
    last_generation_ = std::max(last_generation_, *claim);
    last_known_generation_ = *claim;
    return come_back(member);
  }
  if (is_holder && recovery_ && member.process && contains(on_file_.processes, *member.process)) {
    return come_back(member);
  }
  if (is_holder && !member.is_lease && can_be_joined()) return join(member);
  queue_.push_back(id);
}

void LockdModel::come_back(Member& member) {
  member.returned = true;
  if (recovery_) {
    if (member.process) std::erase(recovery_->running, *member.process);
    // A process may ask again before the end of its first connection is seen.
    const bool again = (member.process || member.is_lease) &&
                       std::any_of(members_.begin(), members_.end(), [&](auto& m) {
                         return m.second.counted && m.second.process == member.process &&
                                m.second.is_lease == member.is_lease;
                       });
    if (recovery_->connections.value_or(0) > 0 && !again) {
      --*recovery_->connections;
      member.counted = true;
    }
  }
  join(member);
}

void LockdModel::join(Member& member) {
  member.waits = false;
  stale_ = true;
}

void LockdModel::refuse_claim(ConnectionId id, std::uint64_t generation) {
  // It was granted some time, by a server whose state was lost.
  if (generation > last_generation_) {
    last_generation_ = generation;
    stale_ = true;
  }
  note("refuse " + quoted(members_.at(id).engine_id) + " (" + members_.at(id).name +
       "): the grant of generation " + std::to_string(generation) + " is over");
  effects_.answers.emplace_back(
      id, RefusedAnswer{ExitStatus::kTryAgain,
                        "the grant of generation " + std::to_string(generation) + " is over"});
  members_.erase(id);
}

bool LockdModel::closed(ConnectionId id, const LockdTime& now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return false;
  Member& member = found->second;
  member.connected = false;
  if (member.counted && recovery_) ++*recovery_->connections;
  member.counted = false;
  // Who never heard of his grant has done nothing under it.
  const bool stays = member.has_lifeline && (member.told || member.returned);
  if (!stays) leave(id);
  settle(now);
  return stays;
}

void LockdModel::lifeline_ended(ConnectionId id, const LockdTime& now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  found->second.has_lifeline = false;
  if (!found->second.connected) leave(id);
  settle(now);
}

void LockdModel::leave(ConnectionId id) {
  if (!members_.at(id).waits) stale_ = true;
  std::erase(queue_, id);
  members_.erase(id);
}

void LockdModel::heartbeat(ConnectionId id, const LockdTime& now) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.told || found->second.heartbeats == kHeardBy)
    return;
  ++found->second.heartbeats;
  settle(now);
}

milliseconds LockdModel::expiry_of(ConnectionId id) const {
  const auto found = members_.find(id);
  const bool is_back = found != members_.end() && found->second.returned;
  if (!is_back || !last_expiry_ || found->second.heartbeats == kHeardBy) return *expiry_;
  return std::max(*expiry_, *last_expiry_);
}

void LockdModel::recorded(const std::optional<std::string>& error, const LockdTime& now) {
  LockdState wanted = std::move(*writing_);
  writing_.reset();
  if (error) {
    not_recorded(wanted, *error, now);
  } else {
    if (failing_) note("the lock's state can be recorded again");
    failing_ = false;
    on_file_ = std::move(wanted);
  }
  settle(now);
}

void LockdModel::not_recorded(const LockdState& wanted, const std::string& error,
                              const LockdTime& now) {
  if (!failing_) {
    warn("record the lock's state: " + error);
    for (const auto& [id, member] : members_) {
      if (!member.told && member.connected) effects_.answers.emplace_back(id, waiting_answer());
    }
  }
  failing_ = true;
  stale_ = true;
  record_again_at_ = now.steady + kRecordAgainAfter;
  // What failed may be the last step only.
  if (on_file_.holder != wanted.holder || on_file_.generation != wanted.generation) {
    on_file_.holder.reset();
  }
  if (!on_file_.connections ||
      (wanted.connections && *wanted.connections < *on_file_.connections)) {
    on_file_.connections = wanted.connections;
  }
  if (!wanted.expiry || (on_file_.expiry && *wanted.expiry < *on_file_.expiry)) {
    on_file_.expiry = wanted.expiry;
  }
  std::erase_if(on_file_.processes, [&](const RecordedProcess& process) {
    return !contains(wanted.processes, process);
  });
}

void LockdModel::process_ended(const RecordedProcess& process, const LockdTime& now) {
  if (recovery_) std::erase(recovery_->running, process);
  settle(now);
}

void LockdModel::tick(const LockdTime& now) { settle(now); }

std::optional<SteadyTime> LockdModel::wake_at() const {
  std::optional<SteadyTime> at = record_again_at_;
  if (recovery_ && !recovery_->window_over) {
    at = at ? std::min(*at, recovery_->window_end) : recovery_->window_end;
  }
  return at;
}

void LockdModel::settle(const LockdTime& now) {
  if (record_again_at_ && now.steady >= *record_again_at_) record_again_at_.reset();
  settle_recovery(now);
  if (last_expiry_ && !recovery_ && !has_unheard()) {
    last_expiry_.reset();
    stale_ = true;
  }
  if (hold_ && !recovery_ && !has_part()) let_go();
  if (!writing_ && !record_again_at_) grant_next(now);
  join_from_queue();
  if (!writing_) {
    tell_granted();
    start_record();
  }
  tell_holder();
}

void LockdModel::settle_recovery(const LockdTime& now) {
  if (!recovery_) return;
  const bool is_back = has_part();
  if (!recovery_->window_over && now.steady >= recovery_->window_end) {
    if (now.steady - recovery_->window_end > kWindowLateness) {
      // The holder had nobody to come back to: he may be among those not yet heard.
      const milliseconds more = std::min(reconnect_window_, kMoreWindow);
      recovery_->window_end = now.steady + more;
      warn("this server was held up: the reconnect window goes on for " +
           base::format_duration(more));
    } else {
      recovery_->window_over = true;
      for (const RecordedProcess& process : recovery_->running) {
        warn("process " + std::to_string(process.pid) + " of " + quoted(hold_->engine_id) +
             " runs and did not come back: nobody else gets the lock before it ends");
      }
    }
  }
  const bool all_back = is_back && recovery_->connections == 0U;
  if (!recovery_->running.empty() || !(recovery_->window_over || all_back)) return;
  recovery_.reset();
  stale_ = true;
  if (is_back) return;
  note("the holder did not come back: the lock is free");
  if (hold_) last_hold_ = hold_;
  hold_.reset();
}

void LockdModel::let_go() {
  if (hold_->known) {
    note(quoted(hold_->engine_id) + " let go of the lock, generation " +
         std::to_string(hold_->generation));
    last_hold_ = hold_;
  }
  hold_.reset();
  stale_ = true;
}

void LockdModel::grant_next(const LockdTime& now) {
  if (hold_ || recovery_ || queue_.empty()) return;
  const ConnectionId first = queue_.front();
  queue_.pop_front();
  Member& member = members_.at(first);
  hold_ = Hold{member.engine_id, ++last_generation_, now.wall, false, member.token};
  join(member);
}

// The holder's other connections, wherever they stand.
void LockdModel::join_from_queue() {
  if (!hold_ || !can_be_joined()) return;
  std::erase_if(queue_, [&](ConnectionId id) {
    Member& member = members_.at(id);
    if (member.engine_id != hold_->engine_id || member.is_lease) return false;
    join(member);
    return true;
  });
}

void LockdModel::tell_granted() {
  if (!hold_) return;
  const auto wanted = connections();
  const bool all_counted = !on_file_.connections || (wanted && *wanted <= *on_file_.connections);
  for (auto& [id, member] : members_) {
    if (member.waits || member.told || !is_on_file(member, all_counted)) continue;
    member.told = true;
    hold_->known = true;
    last_known_generation_ = hold_->generation;
    if (!member.connected) continue;
    note((member.returned ? "given back to " : "granted to ") + quoted(member.engine_id) + " (" +
         member.name + "): generation " + std::to_string(hold_->generation));
    effects_.answers.emplace_back(
        id, GrantedAnswer{hold_->engine_id, hold_->generation, hold_->granted_at, reconnect_window_,
                          member.is_lease ? hold_->token : std::string()});
  }
}

void LockdModel::start_record() {
  const bool is_wanted = somebody_untold() || stale_;
  const bool is_recovering = recovery_ && !has_part();
  if (!is_wanted || is_recovering || record_again_at_) return;
  stale_ = false;
  LockdState wanted = state();
  if (wanted == on_file_ && !failing_) return;
  writing_ = std::move(wanted);
  effects_.record = writing_;
}

// Whoever waits learns for whom.
void LockdModel::tell_holder() {
  if (!hold_ || !hold_->known || announced_ == hold_->generation) return;
  announced_ = hold_->generation;
  for (const ConnectionId id : queue_) effects_.answers.emplace_back(id, waiting_answer());
}

bool LockdModel::has_part() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& each) { return !each.second.waits; });
}

bool LockdModel::has_unheard() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& each) {
    const Member& member = each.second;
    return member.is_lease && member.returned && member.heartbeats < kHeardBy;
  });
}

bool LockdModel::can_be_joined() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& each) {
    return !each.second.waits && each.second.connected && !each.second.is_lease;
  });
}

// One that came back was counted by the last server. The next one has to outwait the leases that
// this one gives.
bool LockdModel::is_on_file(const Member& member, bool all_counted) const {
  if (member.is_lease && (!on_file_.expiry || *on_file_.expiry < *expiry_)) return false;
  return on_file_.holder == hold_->engine_id && on_file_.generation == hold_->generation &&
         (member.returned || all_counted) &&
         (!member.process || contains(on_file_.processes, *member.process));
}

// Of the holder, those still to come back included.
std::optional<std::size_t> LockdModel::connections() const {
  if (recovery_ && !recovery_->connections) return std::nullopt;
  const auto here = std::count_if(members_.begin(), members_.end(),
                                  [](auto& each) { return !each.second.waits; });
  return static_cast<std::size_t>(here) + (recovery_ ? *recovery_->connections : 0);
}

bool LockdModel::somebody_untold() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& each) { return !each.second.waits && !each.second.told; });
}

LockdState LockdModel::state() const {
  LockdState state;
  state.last_generation = last_generation_;
  if (!hold_) {
    state.generation = last_generation_;
    if (last_hold_) {
      state.last_holder = last_hold_->engine_id;
      state.generation = last_hold_->generation;
      state.granted_at = last_hold_->granted_at;
      state.token = last_hold_->token;
    }
    return state;
  }
  state.holder = hold_->engine_id;
  state.generation = hold_->generation;
  state.granted_at = hold_->granted_at;
  const auto add = [&](const RecordedProcess& process) {
    if (!contains(state.processes, process)) state.processes.push_back(process);
  };
  state.connections = connections();
  state.token = hold_->token;
  state.expiry =
      last_expiry_ ? std::max(*last_expiry_, expiry_.value_or(milliseconds(0))) : expiry_;
  for (const auto& [id, member] : members_) {
    if (!member.waits && member.process) add(*member.process);
  }
  if (recovery_) std::for_each(recovery_->running.begin(), recovery_->running.end(), add);
  return state;
}

WaitingAnswer LockdModel::waiting_answer() const {
  if (!hold_ || !hold_->known) return {std::nullopt, std::nullopt, reconnect_window_};
  WaitingAnswer answer{hold_->engine_id, hold_->generation, reconnect_window_};
  // A file of another make has none.
  if (answer.generation == 0U) answer.generation.reset();
  return answer;
}

LockdPhase LockdModel::phase() const {
  if (!has_part()) return recovery_ ? LockdPhase::kRecovering : LockdPhase::kFree;
  return hold_->known ? LockdPhase::kHeld : LockdPhase::kRecording;
}

StatusAnswer LockdModel::status(const LockdTime& now) const {
  StatusAnswer answer;
  answer.generation = last_known_generation_;
  answer.reconnect_window = reconnect_window_;
  if (hold_ && hold_->known) {
    answer.holder = hold_->engine_id;
    answer.granted_at = hold_->granted_at;
  }
  const auto pid_of = [](const Member& member) {
    return member.process ? std::optional(member.process->pid) : std::nullopt;
  };
  for (const auto& [id, member] : members_) {
    if (!member.waits && member.told) {
      answer.connections.push_back({pid_of(member), member.connected});
    }
  }
  // Who was chosen and is not on file yet still waits, before all others.
  for (const auto& [id, member] : members_) {
    if (!member.waits && !member.told) {
      answer.waiters.push_back({member.engine_id, pid_of(member)});
    }
  }
  for (const ConnectionId id : queue_) {
    answer.waiters.push_back({members_.at(id).engine_id, pid_of(members_.at(id))});
  }
  if (phase() == LockdPhase::kRecovering) {
    const auto left = std::chrono::ceil<milliseconds>(recovery_->window_end - now.steady);
    answer.window_left = std::max(left, milliseconds(0));
    for (const RecordedProcess& process : recovery_->running) {
      answer.awaited_pids.push_back(process.pid);
    }
  }
  return answer;
}

}  // namespace fo::lock
