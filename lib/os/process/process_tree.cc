#include "os/process/process_tree.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/process/proc.h"

namespace fo::os {

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  each_process([&](pid_t pid) {
    if (const auto parent = process_parent(pid)) children.emplace(*parent, pid);
  });
  std::vector<pid_t> found;
  pid_t at = ::getpid();
  for (std::size_t next = 0;; ++next) {
    const auto [begin, end] = children.equal_range(at);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
    if (next == found.size()) return found;
    at = found[next];
  }
}

namespace {

// Few descriptors at a time, whatever the limit is.
constexpr std::size_t kBatch = 16;

void signal_batch(std::span<const pid_t> pids, int signal) {
  std::map<pid_t, base::UniqueFd> opened;
  {
    const Pipe reserved;  // the two descriptors that descendants() needs below
    for (const pid_t pid : pids) {
      try {
        if (auto pidfd = open_pidfd(pid)) opened.emplace(pid, std::move(*pidfd));
      } catch (const base::Error&) {
        if (opened.empty()) throw;
        break;  // no descriptor left
      }
    }
  }
  // The pid may have been reused before its pidfd was opened; then it is not listed again.
  const std::vector<pid_t> still = descendants();
  std::erase_if(opened, [&](const auto& entry) {
    return std::find(still.begin(), still.end(), entry.first) == still.end();
  });
  for (const auto& [pid, pidfd] : opened) {
    try {
      send_signal(pidfd.get(), signal);
    } catch (const base::Error&) {
      continue;  // not permitted
    }
  }
  if (signal != SIGKILL) return;
  for (const auto& [pid, pidfd] : opened) release_memory(pidfd.get());
}

}  // namespace

void signal_descendants(int signal) {
  const std::vector<pid_t> all = descendants();
  for (std::size_t at = 0; at < all.size(); at += kBatch) {
    signal_batch(std::span(all).subspan(at, std::min(kBatch, all.size() - at)), signal);
  }
}

void signal_left(int signal) {
  try {
    signal_descendants(signal);
  } catch (const base::Error& error) {
    log(LogLevel::kWarning, "signal the remaining processes: {}", error.what());
  }
}

Reaped reap_any() {
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) {
    if (errno == ECHILD) return {0, 0, true};
    if (errno != EINTR) base::throw_errno(errno, "wait for a child");
  }
  if (info.si_pid == 0) return {};
  return {info.si_pid, info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status, false};
}

}  // namespace fo::os
