#include "fleet/register_worker.h"

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "loop/daemon.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/log.h"

namespace fo::fleet {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;

// Runs `task` until it ends or a signal arrives, which cancels it. Throws what `task` throws,
// unless the signal came first.
void run_until_signal(loop::Daemon& daemon, asio::io_context& io, awaitable<void> task) {
  asio::cancellation_signal cancel;
  bool is_cancelled = false;
  std::exception_ptr failure;
  const auto end = [&](std::exception_ptr error) {
    failure = std::move(error);
    io.stop();
  };
  const auto stop = [&](loop::Stop) {
    is_cancelled = true;
    cancel.emit(asio::cancellation_type::terminal);
  };
  loop::spawn(io, daemon.run(stop), end);
  loop::spawn(io, std::move(task), end, cancel.slot());
  io.run();
  if (failure && !is_cancelled) std::rethrow_exception(failure);
}

}  // namespace

void register_until_signal(Registry& registry, const RegisterOptions& options,
                           const std::function<void()>& on_registered) {
  loop::Daemon daemon(options.ready_fd);
  std::unique_ptr<RegisteredRecord> registered;
  asio::io_context io(1);
  const auto keep = [&]() -> awaitable<void> {
    const Deadline deadline = Deadline::after(options.timeout);
    registered = co_await registry.register_record(options.record, deadline);
    on_registered();
    daemon.ready();
    co_await registered->maintain();
  };
  run_until_signal(daemon, io, keep());
  if (!registered) return;
  loop::run_to_end(deregister_or_log(*registered, options.timeout));
}

awaitable<void> deregister_or_log(RegisteredRecord& registered, base::Duration timeout) {
  try {
    const Deadline deadline = Deadline::after(timeout);
    co_await registered.deregister(deadline);
  } catch (const base::Error& error) {
    os::log(os::LogLevel::kWarning, "deregister: {}", error.what());
  }
}

void watch_registry(Registry& registry, const std::string& prefix,
                    const std::function<void(const RegistryChange&)>& on_change) {
  loop::Daemon daemon;
  std::exception_ptr failure;
  asio::io_context io(1);
  const auto pass_on = [&](const RegistryChange& change) {
    if (failure) return;
    try {
      on_change(change);
    } catch (...) {
      failure = std::current_exception();
      io.stop();
    }
  };
  run_until_signal(daemon, io, registry.watch(prefix, pass_on));
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fo::fleet
