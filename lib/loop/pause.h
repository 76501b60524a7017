// A coroutine's wait for a fixed time.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "base/units.h"

namespace fo::loop {

/// Throws boost::system::system_error when it is cancelled.
boost::asio::awaitable<void> pause_for(base::Duration time);

}  // namespace fo::loop
