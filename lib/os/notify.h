// sd_notify(3) without its library: tells the service manager that this service is ready, how it
// is, and that it is alive. Where no manager listens it does nothing, and a manager that is gone or
// too slow never fails anybody, nor blocks anybody but ready().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "base/units.h"

namespace fo::os {

class Notifier {
 public:
  /// Takes NOTIFY_SOCKET (a path, or '@' and a name), WATCHDOG_USEC and WATCHDOG_PID out of the
  /// environment, so that no child takes them for its own: to be called before there are threads.
  /// What can't be the address of a socket is a warning in the log.
  Notifier();

  /// Waits at most 100 ms for a manager that has too many messages to read.
  void ready() const;
  /// One line for `systemctl status`.
  void status(std::string_view text) const;
  void stopping() const;
  void alive() const;

  /// How often alive() is to be called, half of what the manager waits for; nullopt: it does not.
  [[nodiscard]] std::optional<base::Duration> watchdog_interval() const { return interval_; }

 private:
  void send(std::string_view message, int flags) const;

  base::UniqueFd fd_;
  /// As in the environment; empty: nobody listens.
  std::string address_;
  std::optional<base::Duration> interval_;
};

}  // namespace fo::os
