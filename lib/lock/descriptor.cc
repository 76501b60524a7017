#include "lock/descriptor.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "loop/adopt.h"

namespace fo::lock {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;

stream_descriptor watched(const asio::any_io_executor& executor, base::UniqueFd fd) {
  stream_descriptor descriptor(executor);
  loop::adopt(descriptor, std::move(fd), "watch a descriptor");
  return descriptor;
}

asio::awaitable<bool> readable(stream_descriptor& descriptor) {
  boost::system::error_code error;
  co_await descriptor.async_wait(stream_descriptor::wait_read,
                                 asio::redirect_error(asio::use_awaitable, error));
  if (error && descriptor.is_open()) {
    throw base::Error(base::ExitStatus::kOsError, "wait for a descriptor", std::error_code(error));
  }
  co_return descriptor.is_open();
}

void close(stream_descriptor& descriptor) {
  boost::system::error_code ignored;
  descriptor.close(ignored);
}

}  // namespace fo::lock
