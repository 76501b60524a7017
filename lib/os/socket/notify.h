// sd_notify(3) without its library: reports to the service manager that this service is ready, its
// status, and that it is alive. Without a manager it does nothing. A manager that is missing or too
// slow causes no error, and only ready() may block.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "base/units.h"

namespace fo::os {

class Notifier {
 public:
  /// Removes NOTIFY_SOCKET (a path, or '@' and a name), WATCHDOG_USEC and WATCHDOG_PID from the
  /// environment, so that no child uses them; call it before there are threads. Logs a warning for
  /// an invalid address.
  Notifier();

  /// Waits at most 100 ms for a manager whose queue is full.
  void ready() const;
  /// One line for `systemctl status`.
  void status(std::string_view text) const;
  void stopping() const;
  void alive() const;

  /// The interval for alive(): half of the manager's timeout; nullopt without a watchdog.
  [[nodiscard]] std::optional<base::Duration> watchdog_interval() const { return interval_; }

 private:
  void send(std::string_view message, int flags) const;

  base::UniqueFd fd_;
  /// The address in the environment; empty without a manager.
  std::string address_;
  std::optional<base::Duration> interval_;
};

}  // namespace fo::os
