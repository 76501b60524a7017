// Connects gms-lockd's model with the time, the state file and the recorded processes. Runs on the
// server's loop; only the file is written on a thread, because that may stall.
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
    /// An answer for a connection.
    std::function<void(ConnectionId, const LockdAnswer&)> on_answer;
    /// A record was written, or failed; the next one may be in progress already.
    std::function<void()> on_recorded;
    /// A fatal error.
    std::function<void(std::exception_ptr)> on_failure;
  };

  /// `io` must outlive this object and not run when it is destroyed; the destructor waits for a
  /// pending write. The other arguments are those of LockdModel.
  LockdService(boost::asio::io_context& io, std::string state_path, const LoadedState& loaded,
               std::chrono::milliseconds reconnect_window,
               std::optional<std::chrono::milliseconds> expiry, Callbacks callbacks);

  /// Call it once, before the loop runs.
  void start();

  /// Call apply() after each use of the model.
  [[nodiscard]] LockdModel& model() { return model_; }
  /// Performs the model's effects: logs, sends answers, starts to write a record, sets the timer.
  void apply();
  static LockdTime now();

  [[nodiscard]] bool is_recording() const { return is_recording_; }

 private:
  // The recorded processes that run; watches them from now on.
  std::vector<RecordedProcess> watch_running(const LockdState& state);
  boost::asio::awaitable<void> wait_for_end(std::size_t index);
  void record(const LockdState& state);

  boost::asio::io_context& io_;
  const std::string state_path_;
  const Callbacks callbacks_;
  bool is_recording_ = false;
  // Declared after state_path_, so that its thread has ended before the path is destroyed.
  boost::asio::thread_pool disk_{1};
  std::vector<std::pair<RecordedProcess, boost::asio::posix::stream_descriptor>> running_;
  LockdModel model_;
  os::LogLimit notes_;
  boost::asio::steady_timer timer_;
};

}  // namespace fo::lock
