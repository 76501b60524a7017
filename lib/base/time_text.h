// A moment as text.
#pragma once

#include <chrono>
#include <string>

namespace fo::base {

/// "2026-11-21T05:33:00.123Z".
std::string format_time(std::chrono::system_clock::time_point time);

}  // namespace fo::base
