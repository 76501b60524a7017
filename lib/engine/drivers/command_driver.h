// Drives an engine by commands, one for each step; steps without a command use another driver.
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
  /// `engine` performs the steps without a command. nullptr if there is no other driver: then an
  /// engine passes the checks that have no command.
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
