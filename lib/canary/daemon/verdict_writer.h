// Writes the verdicts on workers into the registry, one at a time: convictions first.
//
// A conviction is written in place of what the registry has at that moment, and an operator's
// acquittal that is there already is kept: so none is lost, whatever was under way.
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
  /// All outlive the coroutine of run(). `writer` is the name under which verdicts are written.
  VerdictWriter(boost::asio::any_io_executor executor, fleet::Registry& registry, Workers& workers,
                std::string writer, DaemonCounts& counts)
      : registry_(registry),
        workers_(workers),
        writer_(std::move(writer)),
        counts_(counts),
        changed_(std::move(executor)) {}
  VerdictWriter(const VerdictWriter&) = delete;
  VerdictWriter& operator=(const VerdictWriter&) = delete;

  /// The verdict on the worker has changed, or is to expire later. A conviction that is in the
  /// registry already is not written again.
  void publish(const std::string& id);
  /// The worker is gone, and its record is to be removed.
  void withdraw(const std::string& id);
  /// Workers::are_verdicts_listed() has become true, before which nothing is written.
  void start() { changed_.notify(); }

  /// Until it is cancelled.
  boost::asio::awaitable<void> run();

 private:
  boost::asio::awaitable<bool> write(std::string id);
  boost::asio::awaitable<void> convict(std::string id, base::Deadline deadline);
  boost::asio::awaitable<void> remove(std::string id);

  fleet::Registry& registry_;
  Workers& workers_;
  const std::string writer_;
  DaemonCounts& counts_;
  Turns convictions_;
  Turns others_;
  /// Of workers that are gone.
  Turns gone_;
  loop::Event changed_;
  os::LogLimit log_limit_;
};

}  // namespace fo::canary
