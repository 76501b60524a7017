#include "loop/pause.h"

#include <gtest/gtest.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <exception>

#include "loop/spawn.h"

namespace fo::loop {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

TEST(PauseFor, EndsAfterItsTime) {
  asio::io_context loop;
  const auto begin = std::chrono::steady_clock::now();
  bool ended = false;
  loop::spawn(loop, pause_for(5ms), [&](const std::exception_ptr& error) { ended = !error; });
  loop.run();
  EXPECT_TRUE(ended);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 5ms);
}

TEST(PauseFor, ACancellationIsThrown) {
  asio::io_context loop;
  asio::cancellation_signal cancel;
  boost::system::error_code got;
  loop::spawn(
      loop, pause_for(1h),
      [&](const std::exception_ptr& error) {
        try {
          if (error) std::rethrow_exception(error);
        } catch (const boost::system::system_error& thrown) {
          got = thrown.code();
        }
      },
      cancel.slot());
  loop.poll();
  cancel.emit(asio::cancellation_type::terminal);
  loop.run();
  EXPECT_EQ(got, asio::error::operation_aborted);
}

}  // namespace
}  // namespace fo::loop
