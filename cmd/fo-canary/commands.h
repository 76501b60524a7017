// The subcommands of fo-canary, one function each; it prints the result and returns an exit status.
#pragma once

#include <string>

#include "canary/file/canary_file.h"
#include "options.h"

namespace fo::fo_canary {

/// Learns canaries from good engines, and writes them to a file; 1 if too few are left.
int learn(const Options& options);
/// Checks one engine once. The status is that of a monitoring plug-in: 0 healthy, 1 suspicious, 2
/// unhealthy, 3 unknown.
int once(const Options& options);
/// Runs the daemon.
int run_daemon(const Options& options);
/// Prints the findings of the daemon on this machine; 1 for an unknown worker.
int state(const Options& options);

/// Reads a file of canaries. Throws what os::read_file and canary::parse_canaries throw.
canary::CanaryFile read_canaries(const std::string& path);

/// Lifts the convictions of a worker; 1 if it has none.
int acquit(const Options& options);
/// Prints the alert rules for Prometheus, or their unit tests.
int rules(const Options& options);
/// Prints the GPU errors of the kernel's log, one line of JSON each.
int xid(const Options& options);

}  // namespace fo::fo_canary
