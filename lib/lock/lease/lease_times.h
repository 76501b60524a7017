// What a holder does when, until its lease ends: all by its own clock, from the moment at which the
// last request was sent that the keeper of the lock answered.
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
  /// To be renewed, at a third.
  [[nodiscard]] Time renew_at() const { return at(1, 3); }
  /// Not to be used any more: what it protected is told to end, at two thirds.
  [[nodiscard]] Time lose_at() const { return at(2, 3); }
  /// What has not ended yet is killed: a tenth is left for the kernel to do that.
  [[nodiscard]] Time end_by() const { return at(9, 10); }
  /// Another may have the lock.
  [[nodiscard]] Time end() const { return at(1, 1); }

 private:
  [[nodiscard]] Time at(int part, int of) const {
    return last_.sent + std::chrono::nanoseconds(last_.ttl) * part / of;
  }

  Renewal last_;
};

}  // namespace fo::lock
