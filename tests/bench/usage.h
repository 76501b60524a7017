// What a process has used: CPU time and memory.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <fstream>
#include <string>

namespace fo::bench {

/// The CPU time of a process and all its threads; 0 if it has ended.
inline double cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

/// A value of /proc/PID/`file` in MiB, such as "VmRSS:" of "status"; 0 if it is missing.
inline double memory_mib(pid_t pid, const std::string& file, const std::string& name) {
  std::ifstream lines("/proc/" + std::to_string(pid) + "/" + file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024;
  }
  return 0;
}

/// The memory that would be free without the process: Pss.
inline double own_mib(pid_t pid) { return memory_mib(pid, "smaps_rollup", "Pss:"); }
inline double resident_mib(pid_t pid) { return memory_mib(pid, "status", "VmRSS:"); }

}  // namespace fo::bench
