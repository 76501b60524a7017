// The times of a holder until its lease ends, by its own clock, counted from the sending of the
// last request that the lock service answered.
#pragma once

#include "base/boot_clock.h"
#include "lock/lease/lease_client.h"

namespace fo::lock {

class LeaseTimes {
 public:
  using Time = base::BootClock::time_point;

  explicit LeaseTimes(const Renewal& last) : last_(last) {}

  [[nodiscard]] Time sent() const { return last_.sent; }
  [[nodiscard]] base::Duration ttl() const { return last_.ttl; }
  /// The lease is renewed, at a third.
  [[nodiscard]] Time renew_at() const { return at(1, 3); }
  /// The lock counts as lost, and the processes that it protected get SIGTERM, at two thirds.
  [[nodiscard]] Time lose_at() const { return at(2, 3); }
  /// The remaining processes get SIGKILL; the last tenth is for the kernel to end them.
  [[nodiscard]] Time end_by() const { return at(9, 10); }
  /// Another contender may have the lock.
  [[nodiscard]] Time end() const { return at(1, 1); }

 private:
  [[nodiscard]] Time at(int part, int of) const {
    return last_.sent + std::chrono::nanoseconds(last_.ttl) * part / of;
  }

  Renewal last_;
};

}  // namespace fo::lock
