// Drives a Dynamo worker through its system status server. The worker has no OpenAI API: the
// reported state of its endpoint is the closest to a proof. It does not report whether it sleeps,
// so the driver remembers its own actions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

class DynamoDriver final : public EngineDriver {
 public:
  /// `alone`: nothing else puts the worker to sleep or wakes it. Otherwise sleep() and wake()
  /// always send their requests.
  DynamoDriver(const std::string& system_url, int sleep_level, bool alone);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  /// The worker must report its endpoint "generate" as ready.
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;

 private:
  // kUnknown from the beginning of a step until it succeeds.
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
