// The child processes of one event loop: started here, waited for without blocking, and whatever
// they leave behind reaped. There is one per process, and nothing else in it waits for children.
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
#include "os/process.h"
#include "os/sibling.h"

namespace fo::loop {

class Children {
 public:
  /// Becomes a child subreaper. SIGCHLD must be blocked, in every thread. For the thread that runs
  /// `io`, which is the one that starts children: its end is their death. The loop always has work
  /// while this object lives. Throws Error(kOsError).
  explicit Children(boost::asio::io_context& io);
  /// Ends nobody, and calls nobody back any more.
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts a program; `on_end` is called from the loop with its status once it has been reaped.
  /// The child dies with this process, whatever `options` say. Throws kNotFound, kCannotRun.
  pid_t start(const std::vector<std::string>& argv, const os::SpawnOptions& options,
              std::function<void(os::WaitStatus)> on_end);

  /// As os::run_captured, without blocking. What it started in turn is not waited for; at the
  /// deadline (or when this call is abandoned) it is killed too, unless it has left the program's
  /// process group.
  boost::asio::awaitable<std::optional<os::Captured>> run_captured(
      std::vector<std::string> argv, base::Deadline deadline,
      std::vector<std::pair<std::string, std::string>> environment = {});

  /// For a process that was started here. False when it has ended and was reaped.
  bool signal(pid_t pid, int signal);

  /// Ends every descendant of this process: TERM, and KILL from `kill_at` on, until none is left,
  /// however long that takes. Each `on_end` is called before it returns. One call at a time.
  boost::asio::awaitable<void> end_all(base::Deadline kill_at);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fo::loop
