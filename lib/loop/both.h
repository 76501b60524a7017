// Two coroutines that run side by side as one.
#pragma once

#include <boost/asio/awaitable.hpp>

namespace fo::loop {

/// Runs both until one of them ends, then cancels the other and waits for its end. Throws what the
/// one that ended first has thrown.
boost::asio::awaitable<void> run_both(boost::asio::awaitable<void> one,
                                      boost::asio::awaitable<void> other);

}  // namespace fo::loop
