#include "lock/peer_warnings.h"

#include <fmt/format.h>

#include "base/units.h"
#include "os/log.h"

namespace fo::lock {
namespace {

constexpr base::Duration kWarnEvery = std::chrono::seconds(5);
constexpr std::size_t kMostWarned = 256;

}  // namespace

void PeerWarnings::warn(const std::string& host, const std::string& text) {
  const auto time = std::chrono::steady_clock::now();
  if (!entries_.contains(host) && entries_.size() >= kMostWarned) {
    std::erase_if(entries_, [&](const auto& each) { return each.second.until <= time; });
  }
  const bool is_told_apart = entries_.contains(host) || entries_.size() < kMostWarned;
  Entry& entry = is_told_apart ? entries_[host] : others_;
  if (time < entry.until) {
    ++entry.left_out;
    return;
  }
  const std::string more =
      entry.left_out == 0 ? "" : fmt::format(" ({} more were left out)", entry.left_out);
  os::log(os::LogLevel::kWarning, "{}{}", text, more);
  entry = {time + kWarnEvery, 0};
}

}  // namespace fo::lock
