#include "gms/server/metrics_server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "base/error.h"
#include "http/metrics_page.h"
#include "http/server.h"
#include "loop/adopt.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

constexpr std::size_t kMaxScrapers = 1024;
// The time to finish pending answers at the end.
constexpr base::Duration kGrace = std::chrono::seconds(2);

awaitable<void> stop_when_readable(asio::posix::stream_descriptor& stop, http::Server& server) {
  boost::system::error_code ignored;
  co_await stop.async_wait(asio::posix::descriptor_base::wait_read,
                           asio::redirect_error(asio::use_awaitable, ignored));
  const base::Deadline deadline = base::Deadline::after(kGrace);
  co_await server.stop(deadline);
}

}  // namespace

void run_metrics_server(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                        int stop_fd) {
  asio::io_context io(1);
  asio::posix::stream_descriptor stop(io);
  const std::string what = "watch for the end of the metrics server";
  loop::adopt(stop, loop::duplicate(stop_fd, what), what);
  http::Server server(io.get_executor(),
                      http::metrics_handler([&servers] { return metrics_text(servers); }),
                      http::limits_for_probes(kMaxScrapers));
  server.listen(std::move(listener));
  std::exception_ptr failure;
  asio::co_spawn(io, stop_when_readable(stop, server), [&](std::exception_ptr error) {
    failure = std::move(error);
    io.stop();
  });
  io.run();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::gms
