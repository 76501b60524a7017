// Writes the verdicts on workers into the registry, one at a time: convictions first. After a
// failure, the verdicts of the other kind are still written, so that one key that can't be written
// does not delay them.
//
// A conviction replaces only the record that it was compared with, and never an operator's
// acquittal, so that no acquittal is lost to a write that was under way.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "canary/daemon/metrics.h"
#include "canary/daemon/turns.h"
#include "canary/daemon/workers.h"
#include "fleet/registry/registry.h"
#include "loop/event.h"
#include "os/log_limit.h"

namespace fo::canary {

class VerdictWriter {
 public:
  /// The references must outlive the coroutine of run(). `writer` is the name under which verdicts
  /// are written.
  VerdictWriter(boost::asio::any_io_executor executor, fleet::Registry& registry, Workers& workers,
                std::string writer, DaemonCounts& counts)
      : registry_(registry),
        workers_(workers),
        writer_(std::move(writer)),
        counts_(counts),
        changed_(std::move(executor)) {}
  VerdictWriter(const VerdictWriter&) = delete;
  VerdictWriter& operator=(const VerdictWriter&) = delete;

  /// Queues the verdict on the worker, because it has changed or its time of expiry must be
  /// extended. A conviction that the registry already has is not written again.
  void publish(const std::string& id);
  /// Queues the removal of the record of a worker that is gone.
  void withdraw(const std::string& id);
  /// To be called when Workers::are_verdicts_listed() becomes true; nothing is written before.
  void start() { changed_.notify(); }

  /// Writes until it is cancelled.
  boost::asio::awaitable<void> run();

  /// Whether the registry does not have all convictions yet.
  [[nodiscard]] bool has_convictions() const { return is_convicting_ || !convictions_.ids.empty(); }
  /// Waits until run() has written all convictions, or until `deadline`.
  boost::asio::awaitable<void> await_convictions(base::Deadline deadline);

 private:
  /// Verdicts of one kind that are to be written.
  struct Queue {
    Turns ids;
    /// The time from which the next one may be written, after a failure.
    base::Deadline::Clock::time_point next_at{};
  };
  boost::asio::awaitable<bool> write(std::string id);
  boost::asio::awaitable<void> convict(std::string id, base::Deadline deadline);
  boost::asio::awaitable<void> remove(std::string id);

  fleet::Registry& registry_;
  Workers& workers_;
  const std::string writer_;
  DaemonCounts& counts_;
  Queue convictions_;
  /// True while a conviction is being written.
  bool is_convicting_ = false;
  Queue others_;
  /// The workers that are gone.
  Turns gone_;
  loop::Event changed_;
  os::LogLimit log_limit_;
};

}  // namespace fo::canary
