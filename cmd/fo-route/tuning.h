// The numbers of fo-route that few operators change. Each is an option without a line in --help, so
// that it is a key of --config, too.
#pragma once

#include "route/serve.h"

namespace CLI {
class App;
}

namespace fo::fo_route {

/// Declares the options, each with its range. The defaults are the values in `serve`.
void declare_tuning(CLI::App& app, route::ServeOptions& serve);

/// Throws Error(kUsage) with the option's name if two of them do not fit together.
void check_tuning(const route::ServeOptions& serve);

}  // namespace fo::fo_route
