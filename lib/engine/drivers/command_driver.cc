// Drives an engine by commands, one for each step; steps without a command use another driver.
#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/drivers/drivers.h"
#include "engine/drivers/engine_api.h"
#include "loop/children.h"

namespace fo::engine {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

namespace {

class CommandDriver final : public EngineDriver {
 public:
  CommandDriver(DriverOptions options, loop::Children& children,
                std::unique_ptr<EngineDriver> engine)
      : options_(std::move(options)), children_(children), engine_(std::move(engine)) {}

  awaitable<std::optional<std::string>> check_health(Deadline deadline) override {
    std::optional<std::string> reason;
    if (options_.health_command.empty()) {
      if (engine_) reason = co_await engine_->check_health(deadline);
      co_return reason;
    }
    try {
      co_await run(kHealthStep, options_.health_command, deadline);
    } catch (const Error& error) {
      if (error.status() != ExitStatus::kSoftware && error.status() != ExitStatus::kTryAgain) throw;
      reason = error.what();
    }
    co_return reason;
  }

  awaitable<void> sleep(Deadline deadline, SleepMode mode) override {
    if (options_.sleep_command.empty()) return engine_->sleep(deadline, mode);
    return run(kSleepStep, options_.sleep_command, deadline);
  }

  awaitable<void> wake(Deadline deadline) override {
    if (options_.wake_command.empty()) return engine_->wake(deadline);
    return run(kWakeStep, options_.wake_command, deadline);
  }

  awaitable<void> prove(Deadline deadline) override {
    if (!options_.prove_command.empty()) {
      co_await run(kProveStep, options_.prove_command, deadline);
    } else if (engine_) {
      co_await engine_->prove(deadline);
    }
  }

  awaitable<std::optional<bool>> is_idle(Deadline deadline) override {
    std::optional<bool> idle;
    if (engine_) idle = co_await engine_->is_idle(deadline);
    co_return idle;
  }

  awaitable<std::optional<double>> progress(Deadline deadline) override {
    std::optional<double> tokens;
    if (engine_) tokens = co_await engine_->progress(deadline);
    co_return tokens;
  }

 private:
  awaitable<void> run(std::string_view step, std::string command, Deadline deadline) {
    const std::string what = fmt::format("{}: command {}", step, base::quoted(command));
    const std::vector<std::string> argv{"sh", "-c", command};
    const std::optional<os::Captured> done = co_await children_.run_captured(argv, deadline);
    if (!done) throw Error(ExitStatus::kTryAgain, what + ": timed out");
    if (done->status == 0) co_return;
    const std::string reason = last_line(done->err);
    throw Error(ExitStatus::kSoftware, fmt::format("{}: status {}{}{}", what, done->status,
                                                   reason.empty() ? "" : ": ", reason));
  }

  DriverOptions options_;
  loop::Children& children_;
  std::unique_ptr<EngineDriver> engine_;
};

}  // namespace

std::unique_ptr<EngineDriver> drive_by_commands(const DriverOptions& options,
                                                loop::Children& children,
                                                std::unique_ptr<EngineDriver> engine) {
  return std::make_unique<CommandDriver>(options, children, std::move(engine));
}

}  // namespace fo::engine
