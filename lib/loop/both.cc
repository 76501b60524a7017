#include "loop/both.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

namespace fo::loop {

namespace asio = boost::asio;

asio::awaitable<void> run_both(asio::awaitable<void> one, asio::awaitable<void> other) {
  const asio::any_io_executor loop = co_await asio::this_coro::executor;
  auto both = asio::experimental::make_parallel_group(
      asio::co_spawn(loop, std::move(one), asio::deferred),
      asio::co_spawn(loop, std::move(other), asio::deferred));
  const auto [order, one_failed, other_failed] =
      co_await std::move(both).async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  const std::exception_ptr& failure = order[0] == 0 ? one_failed : other_failed;
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::loop
