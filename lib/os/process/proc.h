// Lists the processes and their open descriptors from proc(5). A process that starts or ends during
// a call may be missed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace fo::os {

/// Calls `visit` for each process of this pid namespace. Throws Error(kUnavailable) if `proc`
/// cannot be read.
void each_process(const std::function<void(pid_t)>& visit, const std::string& proc = "/proc");

/// Calls `visit(fd, path)` for each open descriptor of `pid`; `path` is its link in /proc to the
/// open file. False if this process has no permission. A process that has ended has no descriptors.
bool each_fd(pid_t pid, const std::function<void(int fd, const std::string& path)>& visit,
             const std::string& proc = "/proc");

}  // namespace fo::os
