// The child processes of one event loop: started here, waited for without blocking; orphans that
// they leave are reaped, too. A process has one such object, and nothing else in it waits for
// children.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "os/process/process.h"
#include "os/process/sibling.h"

namespace fo::loop {

class Children {
 public:
  /// Becomes a child subreaper. SIGCHLD must be blocked in every thread. Construct it on the thread
  /// that runs `io` and starts the children: they die when that thread ends. The loop has work
  /// while this object lives. Throws Error(kOsError).
  explicit Children(boost::asio::io_context& io);
  /// Ends no process, and calls no more callbacks.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts a program; the loop calls `on_end` with its status when it has been reaped. The child
  /// dies with this process, whatever `options` say. Throws kNotFound, kCannotRun.
  pid_t start(const std::vector<std::string>& argv, const os::SpawnOptions& options,
              std::function<void(os::WaitStatus)> on_end);

  /// Does what os::run_captured does, without blocking. It does not wait for processes that the
  /// program started; at the deadline, or if this call is abandoned, it kills them, too, unless
  /// they have left its process group.
  boost::asio::awaitable<std::optional<os::Captured>> run_captured(
      std::vector<std::string> argv, base::Deadline deadline,
      std::vector<std::pair<std::string, std::string>> environment = {});

  /// `pid` must have been started here. False if it has ended and was reaped.
  bool signal(pid_t pid, int signal);

  /// Ends every descendant of this process: with SIGTERM, and with SIGKILL from `kill_at` on, until
  /// none is left. Each `on_end` is called before it returns. One call at a time.
  boost::asio::awaitable<void> end_all(base::Deadline kill_at);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::loop
