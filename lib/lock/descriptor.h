// Descriptors whose readability the loop watches.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/unique_fd.h"

namespace fo::lock {

/// Throws Error(kOsError).
boost::asio::posix::stream_descriptor watched(const boost::asio::any_io_executor& executor,
                                              base::UniqueFd fd);

/// Returns when there is data or the end of the stream; false if `descriptor` was closed. Throws
/// Error(kOsError).
boost::asio::awaitable<bool> readable(boost::asio::posix::stream_descriptor& descriptor);

/// Pending waits return.
void close(boost::asio::posix::stream_descriptor& descriptor);

}  // namespace fo::lock
