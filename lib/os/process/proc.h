// Which processes there are, and what they have open, as proc(5) shows it. Processes come and go
// meanwhile: one that starts or ends while this looks may be missed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace fo::os {

/// Calls `visit` for each process of this pid namespace. Throws Error(kUnavailable) where `proc`
/// can't be read.
void each_process(const std::function<void(pid_t)>& visit, const std::string& proc = "/proc");

/// Calls `visit(fd, path)` for each open descriptor of `pid`, where `path` is a link to what it is
/// of. False where this process may not look; a process that has ended has none.
bool each_fd(pid_t pid, const std::function<void(int fd, const std::string& path)>& visit,
             const std::string& proc = "/proc");

}  // namespace fo::os
