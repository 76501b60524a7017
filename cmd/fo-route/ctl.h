// fo-route ctl: queries a running router, or changes what it does.
#pragma once

#include "options.h"

namespace fo::fo_route {

/// Returns the exit status: 1 if the action's object does not exist. Throws Error(kUsage) for an
/// unknown action or a wrong number of arguments, and what route::send_to_router throws.
int ctl(const Options& options);

}  // namespace fo::fo_route
