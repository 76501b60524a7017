#include "gms/server/metrics_server.h"

#include <poll.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <utility>

#include "http/pages.h"
#include "http/server.h"
#include "loop/event.h"
#include "loop/run.h"

namespace fo::gms {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

constexpr std::size_t kMaxScrapers = 1024;
// The time to finish pending answers at the end.
constexpr base::Duration kCloseTimeout = std::chrono::seconds(2);

// Whether all of them can be used.
bool are_ready(const std::vector<MeteredServer>& servers) {
  return std::all_of(servers.begin(), servers.end(),
                     [](const MeteredServer& server) { return server.counters->ready.get() != 0; });
}

awaitable<void> serve(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                      int stop_fd) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  http::Handler handler = http::make_handler(http::daemon_pages(
      [&servers] { return metrics_text(servers); }, [&servers] { return are_ready(servers); }));
  http::Server server(executor, std::move(handler), http::limits_for_probes(kMaxScrapers));
  server.listen(std::move(listener));
  co_await loop::until_ready(stop_fd, POLLIN, base::Deadline::never());
  const base::Deadline deadline = base::Deadline::after(kCloseTimeout);
  co_await server.stop(deadline);
}

}  // namespace

void run_metrics_server(base::UniqueFd listener, const std::vector<MeteredServer>& servers,
                        int stop_fd) {
  loop::run_to_end(serve(std::move(listener), servers, stop_fd));
}

}  // namespace fo::gms
