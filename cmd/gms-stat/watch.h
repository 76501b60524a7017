// gms-stat --watch: looks again and again and shows what changes, until it is told to end.
#pragma once

#include <string>

#include "options.h"

namespace fo::gms_stat {

/// Watches the server at `socket`, or, where that is empty, every server of the folder `dir`.
/// Returns after a signal that asks for the end. Servers that are not there are shown, not thrown.
/// Errors: those of find_sockets, kUsage for `socket`, kIoError when stdout is gone.
void watch(const Options& options, const std::string& dir, const std::string& socket);

}  // namespace fo::gms_stat
