// Drives SGLang through its memory saver. SGLang doesn't tell whether its memory is released, and
// its health check generates a token, so this remembers what it did.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/drivers/driver.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

class SglangDriver final : public EngineDriver {
 public:
  /// `alone`: nobody else puts it to sleep or wakes it. Otherwise its memory may be released at any
  /// time: it is never asked for a health check that generates, and what sleep() and wake() do is
  /// always done.
  SglangDriver(const std::string& url, bool alone);

  boost::asio::awaitable<std::optional<std::string>> check_health(base::Deadline deadline) override;
  /// An SGLang without a pause must tell whether it is idle (--enable-metrics), or this is kConfig:
  /// to release what is busy ends it. It is believed to be idle the first time with kAbort, when it
  /// has just been started and nobody knows of it. After a release without an answer, which may
  /// come to pass late, another one is refused with kSoftware.
  boost::asio::awaitable<void> sleep(base::Deadline deadline, SleepMode mode) override;
  boost::asio::awaitable<void> wake(base::Deadline deadline) override;
  boost::asio::awaitable<void> prove(base::Deadline deadline) override;
  /// SGLang writes its gauges every 30 s when it has nothing to do: idle may come that late.
  boost::asio::awaitable<std::optional<bool>> is_idle(base::Deadline deadline) override;
  /// Where SGLang has --enable-metrics. It may count the tokens of a request when that is done.
  boost::asio::awaitable<std::optional<double>> progress(base::Deadline deadline) override;

 private:
  // On the way to sleep and back; the memory may be released from kReleasing on.
  enum class Stage { kServing, kPaused, kReleasing, kAsleep };

  void enter(Stage stage);
  boost::asio::awaitable<bool> tell(std::string_view step, std::string_view path,
                                    base::Deadline deadline) const;
  boost::asio::awaitable<void> flush(base::Deadline deadline) const;
  boost::asio::awaitable<void> wait_until_idle(base::Deadline deadline, bool is_unused);

  EngineApi api_;
  bool alone_;
  Stage stage_;
  /// Until it has slept or been woken.
  bool unused_ = true;
};

}  // namespace fo::engine
