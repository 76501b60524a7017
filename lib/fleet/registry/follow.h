// Follows a registry for as long as a daemon runs.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "fleet/registry/registry.h"
#include "loop/backoff.h"

namespace fo::fleet {

/// Watches the records whose keys begin with `prefix` until it is cancelled. If a watch throws,
/// logs the error and begins another one after a pause. The pauses begin with the shortest again
/// after each kListed.
boost::asio::awaitable<void> follow(RecordReader& registry, std::string prefix,
                                    std::function<void(const RegistryChange&)> on_change,
                                    loop::Backoff backoff = {std::chrono::milliseconds(100),
                                                             std::chrono::seconds(5)});

}  // namespace fo::fleet
