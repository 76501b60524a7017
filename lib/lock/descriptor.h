// Descriptors that the loop watches for what can be read from them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/unique_fd.h"

namespace fo::lock {

/// Throws Error(kOsError).
boost::asio::posix::stream_descriptor watched(const boost::asio::any_io_executor& executor,
                                              base::UniqueFd fd);

/// Returns when something can be read, or the end; false once `descriptor` was closed. Throws
/// Error(kOsError).
boost::asio::awaitable<bool> readable(boost::asio::posix::stream_descriptor& descriptor);

/// Who waits for it hears so.
void close(boost::asio::posix::stream_descriptor& descriptor);

}  // namespace fo::lock
