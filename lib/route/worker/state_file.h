// The last listing of a registry in a file (--state), so that a router that starts while the
// registry is unreachable begins with the workers that it had.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "route/worker/registry_source.h"

namespace fo::route {

/// Adds the workers of the file, which are stale. A missing file is an empty one; one that cannot
/// be read or is not a listing is logged, and changes nothing.
void load_state(RegistrySource& source, const std::string& path);

/// Writes the listing, once it is complete, within a second after each change until it is
/// cancelled. Logs what fails, and tries again.
boost::asio::awaitable<void> save_state(const RegistrySource& source, std::string path);

}  // namespace fo::route
