// The options of subcommands that connect to engines.
#pragma once

#include <optional>
#include <string>

#include "canary/check/checker_options.h"
#include "net/tls_files.h"
#include "options.h"

namespace fo::fo_canary {

/// The authority of the engines' certificates; without one, https is refused.
std::optional<net::TlsFiles> worker_tls(const Options& options);

/// The limits and repetitions of a check.
canary::CheckerOptions checker_options(const Options& options);

}  // namespace fo::fo_canary
