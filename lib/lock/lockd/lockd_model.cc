#include "lock/lockd/lockd_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "lock/grant.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using std::chrono::milliseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

std::string describe(const std::optional<RecordedProcess>& process) {
  return process ? "process " + std::to_string(process->pid) : "a process not visible from here";
}

// The number of heartbeats after which a reconnected lease has certainly received the answer.
constexpr int kConfirmingHeartbeats = 2;

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
    // Start where no earlier generation can have been.
    last_generation_ = next_generation({GrantContent::Kind::kDamaged, {}}, false, now.wall) - 1;
    recovery_ = Recovery{now.steady + reconnect_window_};
    warn(std::string(is_lost ? "the state file is missing" : "the state file is damaged") +
         ": a holder of the lock has " + window + " to reconnect");
  } else if (on_file_.holder) {
    hold_ = Hold{*on_file_.holder, on_file_.generation, on_file_.granted_at, true, on_file_.token};
    recovery_ =
        Recovery{now.steady + reconnect_window_, false, on_file_.connections, std::move(running)};
    note(base::quoted(hold_->engine_id) + " held the lock, generation " +
         std::to_string(hold_->generation) + ": it has " + window + " to reconnect");
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
  member.origin = peer.origin;
  member.is_lease = peer.hold_by == HoldBy::kLease;
  member.has_lifeline = peer.hold_by != HoldBy::kConnection;
  decide(id, member, request, now);
  settle(now);
  const auto found = members_.find(id);
  // A free lock is granted when the pending record is written.
  const bool is_free = !hold_ && !recovery_ && !failing_;
  if (found != members_.end() && found->second.waits && !is_free) {
    effects_.answers.emplace_back(id, waiting_answer());
  }
}

// Follows the table in the header, row by row.
void LockdModel::decide(ConnectionId id, Member& member, const AcquireRequest& request,
                        const LockdTime& now) {
  const bool is_holder = hold_ && member.engine_id == hold_->engine_id;
  if (const std::optional<std::uint64_t> claim = request.generation) {
    const auto is_this = [&](const std::optional<Hold>& hold) {
      return hold && hold->engine_id == member.engine_id && hold->generation == *claim &&
             (!member.is_lease || (!hold->token.empty() && hold->token == request.token));
    };
    if (is_this(hold_)) return rejoin(id, member);
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
    return rejoin(id, member);
  }
  if (is_holder && recovery_ && member.process && contains(on_file_.processes, *member.process)) {
    return rejoin(id, member);
  }
  if (is_holder && !member.is_lease && !joinable_.empty()) return join(id, member);
  if (has_place_for(member)) return enqueue(id, member);
  refuse(id, "too many connections from " + member.origin +
                 " wait: " + std::to_string(places_.at(member.origin)));
}

bool LockdModel::has_place_for(const Member& member) const {
  const auto taken = places_.find(member.origin);
  return taken == places_.end() ||
         taken->second < (member.process ? kMaxPlacesOfProcess : kMaxPlaces);
}

void LockdModel::enqueue(ConnectionId id, Member& member) {
  member.ticket = ++last_ticket_;
  queue_.emplace(member.ticket, id);
  if (!member.is_lease) tickets_[member.engine_id].insert(member.ticket);
  if (!member.origin.empty()) ++places_[member.origin];
}

void LockdModel::dequeue(const Member& member) {
  if (queue_.erase(member.ticket) == 0) return;
  const auto same = tickets_.find(member.engine_id);
  if (!member.is_lease && same->second.erase(member.ticket) == 1 && same->second.empty()) {
    tickets_.erase(same);
  }
  const auto place = places_.find(member.origin);
  if (place != places_.end() && --place->second == 0) places_.erase(place);
}

void LockdModel::rejoin(ConnectionId id, Member& member) {
  member.returned = true;
  if (member.is_lease) unconfirmed_.insert(id);
  if (recovery_) {
    if (member.process) std::erase(recovery_->running, *member.process);
    // A process may request again before the end of its first connection is noticed.
    const bool again = (member.process || member.is_lease) &&
                       std::any_of(parts_.begin(), parts_.end(), [&](ConnectionId part) {
                         const Member& other = members_.at(part);
                         return other.counted && other.process == member.process &&
                                other.is_lease == member.is_lease;
                       });
    if (recovery_->connections.value_or(0) > 0 && !again) {
      --*recovery_->connections;
      member.counted = true;
    }
  }
  join(id, member);
}

void LockdModel::join(ConnectionId id, Member& member) {
  dequeue(member);
  hold_->origin = member.origin;
  member.waits = false;
  parts_.insert(id);
  unanswered_.insert(id);
  if (member.connected && !member.is_lease) joinable_.insert(id);
  stale_ = true;
}

void LockdModel::refuse_claim(ConnectionId id, std::uint64_t generation) {
  // It was granted by a server whose state was lost.
  if (generation > last_generation_) {
    last_generation_ = generation;
    stale_ = true;
  }
  refuse(id, "the grant of generation " + std::to_string(generation) + " is over");
}

void LockdModel::refuse(ConnectionId id, const std::string& reason) {
  const Member& member = members_.at(id);
  note("refuse " + base::quoted(member.engine_id) + " (" + member.name + "): " + reason,
       member.origin);
  effects_.answers.emplace_back(id, RefusedAnswer{ExitStatus::kTryAgain, reason});
  members_.erase(id);
}

bool LockdModel::closed(ConnectionId id, const LockdTime& now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return false;
  Member& member = found->second;
  member.connected = false;
  joinable_.erase(id);
  if (member.counted && recovery_) ++*recovery_->connections;
  member.counted = false;
  // A holder that never received its grant has not used it.
  const bool stays = member.has_lifeline && (member.informed || member.returned);
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
  const Member& member = members_.at(id);
  if (!member.waits) stale_ = true;
  dequeue(member);
  for (auto* const index : {&parts_, &unanswered_, &joinable_, &unconfirmed_}) index->erase(id);
  members_.erase(id);
}

void LockdModel::heartbeat(ConnectionId id, const LockdTime& now) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.informed ||
      found->second.heartbeats == kConfirmingHeartbeats)
    return;
  if (++found->second.heartbeats == kConfirmingHeartbeats) unconfirmed_.erase(id);
  settle(now);
}

milliseconds LockdModel::expiry_of(ConnectionId id) const {
  const auto found = members_.find(id);
  const bool is_back = found != members_.end() && found->second.returned;
  if (!is_back || !last_expiry_ || found->second.heartbeats == kConfirmingHeartbeats)
    return *expiry_;
  return std::max(*expiry_, *last_expiry_);
}

void LockdModel::recorded(const std::optional<std::string>& error, const LockdTime& now) {
  LockdState wanted = std::move(*writing_);
  writing_.reset();
  if (error) {
    ++record_failures_;
    not_recorded(wanted, *error, now);
  } else {
    if (failing_) note("the lock's state can be written again");
    failing_ = false;
    on_file_ = std::move(wanted);
  }
  settle(now);
}

void LockdModel::not_recorded(const LockdState& wanted, const std::string& error,
                              const LockdTime& now) {
  if (!failing_) {
    warn("write the lock's state: " + error);
    for (const auto& [id, member] : members_) {
      if (!member.informed && member.connected) effects_.answers.emplace_back(id, waiting_answer());
    }
  }
  failing_ = true;
  stale_ = true;
  record_again_at_ = now.steady + kRecordRetryInterval;
  // The file may have the old content or the new one, so only what both have in common is certain.
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
  if (last_expiry_ && !recovery_ && unconfirmed_.empty()) {
    last_expiry_.reset();
    stale_ = true;
  }
  if (hold_ && !recovery_ && !has_part()) release_hold();
  if (!writing_ && !record_again_at_) grant_next(now);
  join_from_queue();
  if (!writing_) {
    answer_granted();
    start_record();
  }
  announce_holder();
}

void LockdModel::settle_recovery(const LockdTime& now) {
  if (!recovery_) return;
  const bool is_back = has_part();
  if (!recovery_->window_over && now.steady >= recovery_->window_end) {
    if (now.steady - recovery_->window_end > kWindowLateness) {
      // The holder could not reconnect while this server was suspended: its request may be unread.
      const milliseconds more = std::min(reconnect_window_, kWindowExtension);
      recovery_->window_end = now.steady + more;
      warn("this server was suspended: the reconnect window continues for " +
           base::format_duration(more));
    } else {
      recovery_->window_over = true;
      for (const RecordedProcess& process : recovery_->running) {
        warn("process " + std::to_string(process.pid) + " of " + base::quoted(hold_->engine_id) +
             " runs and did not reconnect: the lock is not granted until it ends");
      }
    }
  }
  const bool all_back = is_back && recovery_->connections == 0U;
  if (!recovery_->running.empty() || !(recovery_->window_over || all_back)) return;
  recovery_.reset();
  stale_ = true;
  if (is_back) return;
  note("the holder did not reconnect: the lock is free");
  if (hold_) last_hold_ = hold_;
  hold_.reset();
}

void LockdModel::release_hold() {
  if (hold_->known) {
    note(base::quoted(hold_->engine_id) + " released the lock, generation " +
             std::to_string(hold_->generation),
         hold_->origin);
    last_hold_ = hold_;
  }
  hold_.reset();
  stale_ = true;
}

void LockdModel::grant_next(const LockdTime& now) {
  if (hold_ || recovery_ || queue_.empty()) return;
  const ConnectionId first = queue_.begin()->second;
  Member& member = members_.at(first);
  hold_ = Hold{member.engine_id, ++last_generation_, now.wall, false, member.token};
  join(first, member);
}

// Joins the holder's other connections, wherever they are in the queue.
void LockdModel::join_from_queue() {
  if (!hold_ || joinable_.empty()) return;
  for (auto same = tickets_.find(hold_->engine_id); same != tickets_.end();
       same = tickets_.find(hold_->engine_id)) {
    const ConnectionId id = queue_.at(*same->second.begin());
    join(id, members_.at(id));
  }
}

void LockdModel::answer_granted() {
  if (!hold_ || unanswered_.empty()) return;
  const auto wanted = connections();
  const bool all_counted = !on_file_.connections || (wanted && *wanted <= *on_file_.connections);
  const std::set<RecordedProcess> processes(on_file_.processes.begin(), on_file_.processes.end());
  for (auto each = unanswered_.begin(); each != unanswered_.end();) {
    const ConnectionId id = *each;
    Member& member = members_.at(id);
    if (!is_on_file(member, all_counted, processes)) {
      ++each;
      continue;
    }
    each = unanswered_.erase(each);
    member.informed = true;
    if (!hold_->known) ++grants_;
    hold_->known = true;
    last_known_generation_ = hold_->generation;
    if (!member.connected) continue;
    note((member.returned ? "returned to " : "granted to ") + base::quoted(member.engine_id) +
             " (" + member.name + "): generation " + std::to_string(hold_->generation),
         member.origin);
    effects_.answers.emplace_back(
        id, GrantedAnswer{hold_->engine_id, hold_->generation, hold_->granted_at, reconnect_window_,
                          member.is_lease ? hold_->token : std::string()});
  }
}

void LockdModel::start_record() {
  const bool is_wanted = !unanswered_.empty() || stale_;
  const bool is_recovering = recovery_ && !has_part();
  if (!is_wanted || is_recovering || record_again_at_) return;
  stale_ = false;
  LockdState wanted = state();
  if (wanted == on_file_ && !failing_) return;
  writing_ = std::move(wanted);
  effects_.record = writing_;
}

// Informs the waiters about the holder.
void LockdModel::announce_holder() {
  if (!hold_ || !hold_->known || announced_ == hold_->generation) return;
  announced_ = hold_->generation;
  for (const auto& [ticket, id] : queue_) effects_.answers.emplace_back(id, waiting_answer());
}

// Whether the state file has everything that the next server must know about this member. A
// reconnected member was counted by the last server. A lease needs its expiry on file, because the
// next server must wait for it.
bool LockdModel::is_on_file(const Member& member, bool all_counted,
                            const std::set<RecordedProcess>& processes) const {
  if (member.is_lease && (!on_file_.expiry || *on_file_.expiry < *expiry_)) return false;
  return on_file_.holder == hold_->engine_id && on_file_.generation == hold_->generation &&
         (member.returned || all_counted) &&
         (!member.process || processes.contains(*member.process));
}

// The number of the holder's connections, including those that have not reconnected yet.
std::optional<std::size_t> LockdModel::connections() const {
  if (recovery_ && !recovery_->connections) return std::nullopt;
  return parts_.size() + (recovery_ ? *recovery_->connections : 0);
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
  std::set<RecordedProcess> added;
  const auto add = [&](const RecordedProcess& process) {
    if (added.insert(process).second) state.processes.push_back(process);
  };
  state.connections = connections();
  state.token = hold_->token;
  state.expiry =
      last_expiry_ ? std::max(*last_expiry_, expiry_.value_or(milliseconds(0))) : expiry_;
  for (const ConnectionId id : parts_) {
    if (members_.at(id).process) add(*members_.at(id).process);
  }
  if (recovery_) std::for_each(recovery_->running.begin(), recovery_->running.end(), add);
  return state;
}

WaitingAnswer LockdModel::waiting_answer() const {
  if (!hold_ || !hold_->known) return {std::nullopt, std::nullopt, reconnect_window_};
  WaitingAnswer answer{hold_->engine_id, hold_->generation, reconnect_window_};
  // A file of another writer has none.
  if (answer.generation == 0U) answer.generation.reset();
  return answer;
}

std::optional<ConnectionId> LockdModel::find_joinable() const {
  return joinable_.empty() ? std::nullopt : std::optional(*joinable_.begin());
}

LockdPhase LockdModel::phase() const {
  if (!has_part()) return recovery_ ? LockdPhase::kRecovering : LockdPhase::kFree;
  return hold_->known ? LockdPhase::kHeld : LockdPhase::kRecording;
}

LockdCounts LockdModel::counts() const {
  return {hold_ && hold_->known,
          phase() == LockdPhase::kRecovering,
          last_known_generation_,
          parts_.size() - unanswered_.size(),
          queue_.size() + unanswered_.size(),
          grants_,
          record_failures_};
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
  for (const ConnectionId id : parts_) {
    if (answer.connections.size() == kMaxListed) break;
    const Member& member = members_.at(id);
    if (member.informed) answer.connections.push_back({pid_of(member), member.connected});
  }
  const auto add_waiter = [&](ConnectionId id) {
    const Member& member = members_.at(id);
    answer.waiters.push_back({member.engine_id, pid_of(member)});
    return answer.waiters.size() < kMaxListed;
  };
  // A client that was chosen but not recorded yet still waits, at the front.
  bool has_room = true;
  for (auto id = unanswered_.begin(); has_room && id != unanswered_.end(); ++id)
    has_room = add_waiter(*id);
  for (auto each = queue_.begin(); has_room && each != queue_.end(); ++each) {
    has_room = add_waiter(each->second);
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
