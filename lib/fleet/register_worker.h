// Keeps the record of a worker that another program runs, or watches a registry, until a signal
// arrives.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>

#include "base/units.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

struct RegisterOptions {
  Record record;
  /// The timeout of the first registration, and of the deregistration.
  base::Duration timeout = std::chrono::seconds(5);
  /// The descriptor that gets a newline when the record is written; -1 for none.
  int ready_fd = -1;
};

/// Writes the record, calls `on_registered`, and keeps the record until SIGTERM, SIGINT, SIGHUP or
/// SIGQUIT; then it deregisters. Throws what Registry::keep throws.
void register_until_signal(Registry& registry, const RegisterOptions& options,
                           const std::function<void()>& on_registered);

/// Deregisters. An error is only logged, because the record does not outlast this process for long.
boost::asio::awaitable<void> deregister_or_log(RegisteredRecord& registered,
                                               base::Duration timeout);

/// Calls `on_change` for each change of records whose keys begin with `prefix`, as Registry::watch
/// does, until SIGTERM, SIGINT, SIGHUP or SIGQUIT. An exception of `on_change` ends the watch, and
/// is thrown by this call.
void watch_registry(Registry& registry, const std::string& prefix,
                    const std::function<void(const RegistryChange&)>& on_change);

}  // namespace fo::fleet
