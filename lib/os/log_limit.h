// Limits log lines that peers can cause at will: a budget for each peer, one for all of them, and a
// line with the number of suppressed messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "os/log.h"

namespace fo::os {

class LogLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `burst` lines at once, and one more for each `refill` that passes.
  struct Budget {
    int burst = 0;
    base::Duration refill{};
  };
  struct Budgets {
    Budget peer{5, std::chrono::seconds(5)};
    Budget all{50, std::chrono::milliseconds(500)};
  };
  /// Further peers share the budget of one.
  static constexpr std::size_t kMaxPeers = 256;

  explicit LogLimit(const Budgets& budgets) : budgets_(budgets) {}
  LogLimit() : LogLimit(Budgets{}) {}

  /// Logs `text`, which `peer` (an address, a process, a user) has caused, or counts it if the
  /// budget of this peer or of all peers is used up.
  void log(LogLevel level, const std::string& peer, std::string_view text,
           Time now = std::chrono::steady_clock::now());

  /// If a line caused by `peer` may be written now: the number of lines suppressed before.
  /// Otherwise counts it and returns nullopt.
  std::optional<std::uint64_t> admit(const std::string& peer, Time now);

 private:
  struct Bucket {
    /// When the budget is full again.
    Time full_at{};
    std::uint64_t left_out = 0;
  };
  static bool has_room(const Bucket& bucket, const Budget& budget, Time now);
  static void take(Bucket& bucket, const Budget& budget, Time now);
  Bucket& bucket_of(const std::string& peer, Time now);

  Budgets budgets_;
  std::map<std::string, Bucket> peers_;
  Bucket others_;
  Bucket all_;
};

}  // namespace fo::os
