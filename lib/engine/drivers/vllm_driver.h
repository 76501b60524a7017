// Drives vLLM, and fo-refengine with the same API, through the sleep mode. The health check does
// not detect a hung core; prove() does.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

class VllmDriver final : public EngineDriver {
 public:
  /// `sleep_level` is 1 or 2; nullopt for an engine that never sleeps: sleep and wake do nothing.
  VllmDriver(const std::string& url, std::optional<int> sleep_level);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  /// After a wake from level 2 that failed between its halves, another wake continues from there.
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;
  boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline) override;

 private:
  /// The progress of a wake from level 2 that has not succeeded.
  enum class Awake { kNothing, kWeights, kAll };

  boost::asio::awaitable<bool> is_sleeping(std::string_view step, base::Deadline deadline) const;
  boost::asio::awaitable<void> wait_until(std::string_view step, bool asleep,
                                          base::Deadline deadline) const;
  boost::asio::awaitable<void> control(std::string_view step, std::string_view path,
                                       std::string_view body, base::Deadline deadline) const;
  boost::asio::awaitable<void> wake_by_halves(base::Deadline deadline);
  boost::asio::awaitable<void> wake_half(std::string_view tag, Awake after,
                                         base::Deadline deadline);

  EngineApi api_;
  std::optional<int> sleep_level_;
  Awake awake_ = Awake::kNothing;
};

}  // namespace fo::engine
