// Drives SGLang through its memory saver. SGLang does not report whether its memory is released,
// and its health check generates a token, so the driver remembers its own actions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

class SglangDriver final : public EngineDriver {
 public:
  /// `alone`: nothing else puts the engine to sleep or wakes it. Otherwise its memory may be
  /// released at any time: the health check that generates is never used, and sleep() and wake()
  /// always send their requests.
  SglangDriver(const std::string& url, bool alone);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  /// An SGLang without a pause must report whether it is idle (--enable-metrics); otherwise throws
  /// kConfig, because releasing the memory of a busy engine ends it. It is assumed to be idle in
  /// the first sleep with kAbort, when it has just been started and has no clients. After a release
  /// without an answer, which may take effect late, another release is refused with kSoftware.
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  /// SGLang updates its gauges every 30 s when it is idle, so the result may be that late.
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;
  /// Needs SGLang's --enable-metrics. SGLang may count a request's tokens only when it ends.
  boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline) override;

 private:
  // The stages of sleep and wake; from kReleasing on, the memory may be released.
  enum class Stage { kServing, kPaused, kReleasing, kAsleep };

  void enter(Stage stage);
  boost::asio::awaitable<bool> post_optional(std::string_view step, std::string_view path,
                                             base::Deadline deadline) const;
  boost::asio::awaitable<void> flush(base::Deadline deadline) const;
  boost::asio::awaitable<void> wait_until_idle(base::Deadline deadline, bool is_unused);

  EngineApi api_;
  bool alone_;
  Stage stage_;
  /// True until the first sleep or wake.
  bool unused_ = true;
};

}  // namespace fo::engine
