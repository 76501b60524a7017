// Drives a Dynamo worker through its system status server. The worker has no API of OpenAI's: what
// it says of its endpoint is the nearest to a proof.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/driver.h"
#include "engine/engine_api.h"

namespace fo::engine {

class DynamoDriver final : public EngineDriver {
 public:
  DynamoDriver(const std::string& system_url, int sleep_level);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;

 private:
  boost::asio::awaitable<void> control(std::string_view step, std::string_view name,
                                       std::string body, base::Deadline deadline) const;

  EngineApi api_;
  int sleep_level_;
};

}  // namespace fo::engine
