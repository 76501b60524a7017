// What gms-lockd's model of the lock knows nothing of: the time, the state file, and the recorded
// processes. On the server's loop; only the writing of the file, which may stall, is on a thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lock/lockd/lockd_model.h"
#include "lock/lockd/lockd_state.h"
#include "os/log_limit.h"

namespace fo::lock {

class LockdService {
 public:
  struct Callbacks {
    /// Something is to be said to a connection.
    std::function<void(ConnectionId, const LockdAnswer&)> on_answer;
    /// A record was written, or could not be; the next one may be under way already.
    std::function<void()> on_recorded;
    /// What can't go on.
    std::function<void(std::exception_ptr)> on_failure;
  };

  /// `io` outlives it, and runs no more when it is destroyed, which waits for the file that is
  /// being written. The rest as LockdModel has it.
  LockdService(boost::asio::io_context& io, std::string state_path, const LoadedState& loaded,
               std::chrono::milliseconds reconnect_window,
               std::optional<std::chrono::milliseconds> expiry, Callbacks callbacks);

  /// Once, before the loop runs.
  void start();

  /// apply() is to be called after everything that it was told.
  [[nodiscard]] LockdModel& model() { return model_; }
  void apply();
  static LockdTime now();

  [[nodiscard]] bool is_recording() const { return is_recording_; }

 private:
  // The recorded processes that run, which are watched from now on.
  std::vector<RecordedProcess> watch_running(const LockdState& state);
  boost::asio::awaitable<void> wait_for_end(std::size_t index);
  void record(const LockdState& state);

  boost::asio::io_context& io_;
  const std::string state_path_;
  const Callbacks callbacks_;
  bool is_recording_ = false;
  // Its thread has ended before what it reads is destroyed.
  boost::asio::thread_pool disk_{1};
  std::vector<std::pair<RecordedProcess, boost::asio::posix::stream_descriptor>> running_;
  LockdModel model_;
  os::LogLimit notes_;
  boost::asio::steady_timer timer_;
};

}  // namespace fo::lock
