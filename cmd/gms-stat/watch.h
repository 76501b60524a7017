// gms-stat --watch: queries repeatedly and shows changes, until a signal ends it.
#pragma once

#include <string>

#include "options.h"

namespace fo::gms_stat {

/// Watches the server at `socket` or, if that is empty, every server of the folder `dir`. Returns
/// after a terminating signal. Missing servers are shown, not thrown. Throws what find_sockets
/// throws, kUsage for `socket`, kIoError if stdout is closed.
void watch(const Options& options, const std::string& dir, const std::string& socket);

}  // namespace fo::gms_stat
