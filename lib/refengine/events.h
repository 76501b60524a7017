// Events of the engine and its ranks for --status-fd. Ranks send them to the engine's process; an
// event carries the time of its creation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "os/socket/status_fd.h"

namespace fo::refengine {

/// {"event": name, "time": now, "monotonic": now}, as os::StatusFd writes them.
nlohmann::json make_event(std::string_view name);

class EventLog {
 public:
  /// Argument of os::StatusFd.
  explicit EventLog(int fd) : fd_(fd) {}
  void write(const nlohmann::json& event) const;

 private:
  os::StatusFd fd_;
};

}  // namespace fo::refengine
