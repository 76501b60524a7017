// Drives an engine by programs, one for each step; steps without one are another driver's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"

namespace fo::loop {
class Children;
}

namespace fo::engine {

class CommandDriver final : public EngineDriver {
 public:
  /// `engine` does what has no command; nullptr where nothing else can be done: then an engine
  /// without a command for a check passes it.
  CommandDriver(DriverOptions options, loop::Children& children,
                std::unique_ptr<EngineDriver> engine);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline) override;

 private:
  boost::asio::awaitable<void> run(std::string_view step, std::string command,
                                   base::Deadline deadline);

  DriverOptions options_;
  loop::Children& children_;
  std::unique_ptr<EngineDriver> engine_;
};

}  // namespace fo::engine
