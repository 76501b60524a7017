#include "os/log_limit.h"

#include <algorithm>
#include <utility>

namespace fo::os {

void LogLimit::log(LogLevel level, const std::string& peer, std::string_view text, Time now) {
  if (!log_enabled(level)) return;
  const std::optional<std::uint64_t> left_out = admit(peer, now);
  if (!left_out) return;
  log_line(level, text);
  if (*left_out > 0) os::log(level, "{} messages like this were suppressed", *left_out);
}

std::optional<std::uint64_t> LogLimit::admit(const std::string& peer, Time now) {
  Bucket& own = bucket_of(peer, now);
  if (!has_room(own, budgets_.peer, now)) {
    ++own.left_out;
    return std::nullopt;
  }
  if (!has_room(all_, budgets_.all, now)) {
    ++all_.left_out;
    return std::nullopt;
  }
  take(own, budgets_.peer, now);
  take(all_, budgets_.all, now);
  return std::exchange(own.left_out, 0) + std::exchange(all_.left_out, 0);
}

bool LogLimit::has_room(const Bucket& bucket, const Budget& budget, Time now) {
  return std::max(bucket.full_at, now) + budget.refill <= now + budget.burst * budget.refill;
}

void LogLimit::take(Bucket& bucket, const Budget& budget, Time now) {
  bucket.full_at = std::max(bucket.full_at, now) + budget.refill;
}

LogLimit::Bucket& LogLimit::bucket_of(const std::string& peer, Time now) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) return found->second;
  if (peers_.size() >= kMaxPeers) {
    // A peer whose budget is full again needs no entry.
    std::erase_if(peers_, [&](const auto& each) {
      const Bucket& bucket = each.second;
      if (bucket.full_at > now) return false;
      all_.left_out += bucket.left_out;
      return true;
    });
  }
  return peers_.size() < kMaxPeers ? peers_[peer] : others_;
}

}  // namespace fo::os
