#include "loop/run.h"

#include <exception>

#include "loop/spawn.h"

namespace fo::loop {

void run_to_end(boost::asio::io_context& loop, boost::asio::awaitable<void> task) {
  std::exception_ptr failure;
  spawn(loop, std::move(task), [&](std::exception_ptr thrown) { failure = std::move(thrown); });
  loop.restart();
  loop.run();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::loop
