// The drivers of each kind of engine, for make_driver(). Each file defines one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/drivers/driver.h"

namespace fo::engine {

/// `sleep_level` is 1 or 2; nullopt for an engine that never sleeps: sleep and wake do nothing.
std::unique_ptr<EngineDriver> drive_vllm(const std::string& url, std::optional<int> sleep_level);

/// `alone`: nothing else puts the engine to sleep or wakes it. Otherwise its memory may be released
/// at any time: the health check that generates is never used, and sleep() and wake() always send
/// their requests.
std::unique_ptr<EngineDriver> drive_sglang(const std::string& url, bool alone);

/// `alone`: nothing else puts the worker to sleep or wakes it. Otherwise sleep() and wake() always
/// send their requests.
std::unique_ptr<EngineDriver> drive_dynamo(const std::string& system_url, int sleep_level,
                                           bool alone);

/// `engine` performs each step for which `options` has no command. It may be nullptr: then a check
/// without a command succeeds.
std::unique_ptr<EngineDriver> drive_by_commands(const DriverOptions& options,
                                                loop::Children& children,
                                                std::unique_ptr<EngineDriver> engine);

}  // namespace fo::engine
