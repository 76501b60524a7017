// Threads in addition to the one that reads signals.
#pragma once

#include <functional>
#include <thread>

namespace fo::os {

/// Runs `body` on a thread that starts with every signal blocked, so that it receives no signal
/// meant for another one. Throws std::system_error.
std::thread start_signal_masked_thread(std::function<void()> body);

}  // namespace fo::os
