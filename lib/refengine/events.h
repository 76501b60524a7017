// Events of the engine and its ranks for --status-fd. Ranks send them to the engine's process; an
// event carries the time of its creation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "os/socket/status_fd.h"

namespace fo::refengine {

/// {"event": name, "time": now, "monotonic": now}, as os::StatusFd writes them.
nlohmann::json make_event(std::string_view name);

void write_event(const os::StatusFd& fd, const nlohmann::json& event);

}  // namespace fo::refengine
