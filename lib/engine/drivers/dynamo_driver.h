// Drives a Dynamo worker through its system status server. The worker has no API of OpenAI's: what
// it says of its endpoint is the nearest to a proof. Nor does it tell whether it sleeps, so this
// remembers what it did.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

class DynamoDriver final : public EngineDriver {
 public:
  /// `alone`: nobody else puts it to sleep or wakes it. Otherwise what sleep() and wake() do is
  /// always done.
  DynamoDriver(const std::string& system_url, int sleep_level, bool alone);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  /// The worker must call its endpoint "generate" ready.
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;

 private:
  // kUnknown from the beginning of a step to its success.
  enum class Stage { kServing, kUnknown, kAsleep };

  void enter(Stage stage);
  boost::asio::awaitable<void> control(std::string_view step, std::string_view name,
                                       std::string body, base::Deadline deadline) const;

  EngineApi api_;
  int sleep_level_;
  bool alone_;
  Stage stage_;
};

}  // namespace fo::engine
