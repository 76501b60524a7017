#include "gms/protocol/server_model.h"

#include <algorithm>
#include <utility>

namespace fo::gms {
namespace {

// rw_or_ro accepts a reader's lock, so it does not block readers while it waits.
bool keeps_readers_out(LockType type) {
  return type == LockType::kRw || type == LockType::kRwDataOrRw;
}

bool is_writer(Grant grant) { return grant != Grant::kRo; }

}  // namespace

SessionId ServerModel::enqueue(LockType type) {
  const SessionId session = next_session_++;
  waiting_.push_back({session, type});
  return session;
}

std::size_t ServerModel::waiting_writers() const {
  return static_cast<std::size_t>(std::count_if(
      waiting_.begin(), waiting_.end(), [](const auto& w) { return keeps_readers_out(w.type); }));
}

std::optional<Grant> ServerModel::possible_grant(LockType type, bool writer_waits) const {
  const bool can_write = !has_writer_ && readers_ == 0;
  const bool can_read = published() && !has_writer_ && !writer_waits;
  switch (type) {
    case LockType::kRw:
      if (can_write) return Grant::kRw;
      break;
    case LockType::kRo:
      if (can_read) return Grant::kRo;
      break;
    case LockType::kRwOrRo:
      if (can_read) return Grant::kRo;
      if (can_write && !published()) return Grant::kRw;
      break;
    case LockType::kRwDataOrRw:
      if (can_write) return stage_ == Stage::kSealed ? Grant::kRwData : Grant::kRw;
      break;
  }
  return std::nullopt;
}

std::optional<ServerModel::Granted> ServerModel::grant_next(
    const std::function<bool(SessionId)>& is_alive) {
  // Counted once, because there may be thousands.
  bool writer_waits = waiting_writers() > 0;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const std::optional<Grant> grant = possible_grant(at->type, writer_waits);
    if (!grant) {
      ++at;
      continue;
    }
    const SessionId session = at->session;
    waiting_.erase(at);
    if (!is_alive(session)) {
      at = waiting_.begin();  // a waiter that has left may have blocked earlier ones
      writer_waits = waiting_writers() > 0;
      continue;
    }
    if (*grant == Grant::kRo) {
      ++readers_;
    } else {
      has_writer_ = true;
      if (*grant == Grant::kRw) {
        if (published()) add_event("allocations_cleared", layout_.allocations().size());
        drop_layout();
      }
      add_event("rw_connected");
    }
    granted_.emplace(session, *grant);
    return Granted{session, *grant};
  }
  return std::nullopt;
}

void ServerModel::disconnect(SessionId session) {
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.session == session; });
  const auto found = granted_.find(session);
  if (found == granted_.end()) return;
  const Grant grant = found->second;
  granted_.erase(found);
  if (!is_writer(grant)) {
    --readers_;
    return;
  }
  has_writer_ = false;
  const std::size_t count = layout_.allocations().size();
  if (stage_ == Stage::kOpen) {
    add_event("rw_aborted");
    drop_layout();
    add_event("allocations_cleared", count);
  } else {
    add_event("rw_disconnected", count);
  }
}

std::optional<Grant> ServerModel::grant_of(SessionId session) const {
  const auto found = granted_.find(session);
  return found == granted_.end() ? std::nullopt : std::optional(found->second);
}

void ServerModel::seal(LayoutHash hash) {
  hash_ = std::move(hash);
  stage_ = Stage::kSealed;
  for (auto& [session, grant] : granted_)
    grant = Grant::kRwData;  // a writer has no other sessions beside it
  add_event("layout_committed", layout_.allocations().size());
}

void ServerModel::publish(LayoutHash hash) {
  hash_ = std::move(hash);
  stage_ = Stage::kPublished;
  granted_.clear();
  has_writer_ = false;
  add_event("committed");
}

void ServerModel::restore(Layout layout, LayoutHash hash, bool published) {
  layout_ = std::move(layout);
  hash_ = std::move(hash);
  stage_ = published ? Stage::kPublished : Stage::kSealed;
}

void ServerModel::drop_layout() {
  if (layout_.bytes() > 0) released_bytes_ = layout_.bytes();
  layout_.clear();
  hash_ = {};
  stage_ = Stage::kOpen;
  ++layout_epoch_;
}

ServerState ServerModel::state() const {
  if (has_writer_) return ServerState::kRw;
  if (readers_ > 0) return ServerState::kRo;
  if (stage_ == Stage::kPublished) return ServerState::kCommitted;
  if (stage_ == Stage::kSealed) return ServerState::kLayoutCommitted;
  return ServerState::kEmpty;
}

std::size_t ServerModel::sessions(Grant grant) const {
  if (grant == Grant::kRo) return readers_;
  return static_cast<std::size_t>(std::count_if(
      granted_.begin(), granted_.end(), [&](const auto& one) { return one.second == grant; }));
}

std::size_t ServerModel::waiting(LockType type) const {
  return static_cast<std::size_t>(std::count_if(
      waiting_.begin(), waiting_.end(), [&](const Waiting& one) { return one.type == type; }));
}

GetLockStateResponse ServerModel::lock_state() const {
  GetLockStateResponse answer;
  answer.state = to_string(state());
  answer.has_rw_session = has_writer_;
  answer.ro_session_count = static_cast<std::int64_t>(readers_);
  answer.waiting_writers = static_cast<std::int64_t>(waiting_writers());
  answer.committed = published();
  answer.is_ready = published() && !has_writer_;
  answer.layout_committed = stage_ != Stage::kOpen;
  return answer;
}

GetRuntimeStateResponse ServerModel::runtime_state() const {
  return {lock_state(), static_cast<std::int64_t>(layout_.allocations().size()), hash_,
          static_cast<std::int64_t>(layout_.bytes()), static_cast<std::int64_t>(released_bytes_)};
}

void ServerModel::add_event(std::string kind, std::size_t allocation_count) {
  events_.push_back({std::move(kind), static_cast<std::int64_t>(allocation_count)});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

}  // namespace fo::gms
