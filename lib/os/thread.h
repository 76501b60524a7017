// Threads beside the one that reads the signals.
#pragma once

#include <functional>
#include <thread>

namespace fo::os {

/// Runs `body` on a thread that is born with every signal blocked, so that none meant for others
/// ends up there. Throws std::system_error.
std::thread start_signal_masked_thread(std::function<void()> body);

}  // namespace fo::os
