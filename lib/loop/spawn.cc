#include "loop/spawn.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>

namespace fo::loop {

void spawn(boost::asio::any_io_executor executor, boost::asio::awaitable<void> task,
           SpawnHandler on_end, boost::asio::cancellation_slot cancel) {
  auto handler = [on_end = std::move(on_end)](std::exception_ptr thrown) {
    if (on_end) on_end(std::move(thrown));
  };
  boost::asio::co_spawn(std::move(executor), std::move(task),
                        boost::asio::bind_cancellation_slot(cancel, std::move(handler)));
}

}  // namespace fo::loop
