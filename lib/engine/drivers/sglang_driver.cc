// Drives SGLang through its memory saver. SGLang does not report whether its memory is released,
// and its health check generates a token, so the driver remembers its own actions.
#include <fmt/format.h>

#include <string_view>

#include "engine/drivers/drivers.h"
#include "engine/drivers/engine_api.h"
#include "loop/pause.h"

namespace fo::engine {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

namespace {

class SglangDriver final : public EngineDriver {
 public:
  SglangDriver(const std::string& url, bool alone)
      : api_(url), alone_(alone), stage_(alone ? Stage::kServing : Stage::kReleasing) {}

  awaitable<std::optional<std::string>> check_health(Deadline deadline) override {
    if (stage_ == Stage::kServing) return api_.check_health("/health", deadline);
    // Only the HTTP server answers this request.
    return api_.check_health("/ping", deadline);
  }

  /// An SGLang without a pause must report whether it is idle (--enable-metrics); otherwise throws
  /// kConfig, because releasing the memory of a busy engine ends it. It is assumed to be idle in
  /// the first sleep with kAbort, when it has just been started and has no clients. After a release
  /// without an answer, which may take effect late, another release is refused with kSoftware.
  awaitable<void> sleep(Deadline deadline, SleepMode mode) override {
    if (stage_ == Stage::kAsleep) co_return;
    if (alone_ && stage_ == Stage::kReleasing) {
      throw Error(
          ExitStatus::kSoftware,
          fmt::format("{}: its memory may be released already, and a second release would end it",
                      kSleepStep));
    }
    // A pause aborts running requests; those that wait in the engine then keep its cache from being
    // flushed.
    if (mode == SleepMode::kFinish) co_await flush(deadline);
    enter(Stage::kPaused);
    const bool paused = co_await post_optional(kSleepStep, "/pause_generation", deadline);
    co_await flush(deadline);
    // A release would end an SGLang that is busy. Versions without a pause answer a flush with 200
    // even if they are busy.
    if (!paused) co_await wait_until_idle(deadline, unused_ && mode == SleepMode::kAbort);
    enter(Stage::kReleasing);
    const EngineReply answer =
        co_await api_.post(kSleepStep, "/release_memory_occupation", "{}", deadline);
    if (!answer.ok()) enter(Stage::kPaused);
    if (answer.status == 404) {
      throw answer.failure(ExitStatus::kConfig, "status 404: SGLang needs --enable-memory-saver");
    }
    if (!answer.ok()) throw answer.refusal();
    enter(Stage::kAsleep);
    unused_ = false;
  }

  awaitable<void> wake(Deadline deadline) override {
    unused_ = false;
    if (stage_ == Stage::kServing) co_return;
    if (stage_ != Stage::kPaused) {
      const EngineReply answer =
          co_await api_.post(kWakeStep, "/resume_memory_occupation", "{}", deadline);
      if (!answer.ok()) throw answer.refusal();
      enter(Stage::kPaused);
    }
    co_await post_optional(kWakeStep, "/continue_generation", deadline);
    enter(Stage::kServing);
  }

  awaitable<void> prove(Deadline deadline) override { return api_.prove(deadline); }

  /// SGLang updates its gauges every 30 s when it is idle, so the result may be that late.
  awaitable<std::optional<bool>> is_idle(Deadline deadline) override {
    return api_.is_idle("sglang:num_running_reqs", "sglang:num_queue_reqs", deadline);
  }

  /// Needs SGLang's --enable-metrics. SGLang may count a request's tokens only when it ends.
  awaitable<std::optional<double>> progress(Deadline deadline) override {
    return api_.count("sglang:generation_tokens_total", deadline);
  }

 private:
  // The stages of sleep and wake; from kReleasing on, the memory may be released.
  enum class Stage { kServing, kPaused, kReleasing, kAsleep };

  void enter(Stage stage) {
    if (alone_) stage_ = stage;
  }

  // False if this version does not have the request.
  awaitable<bool> post_optional(std::string_view step, std::string_view path,
                                Deadline deadline) const {
    const EngineReply answer = co_await api_.post(step, path, "{}", deadline);
    if (!answer.ok() && answer.status != 404) throw answer.refusal();
    co_return answer.ok();
  }

  // SGLang refuses a flush with 400 while there are requests.
  awaitable<void> flush(Deadline deadline) const {
    for (;;) {
      const EngineReply answer = co_await api_.post(kSleepStep, "/flush_cache", "", deadline);
      if (answer.ok()) co_return;
      if (answer.status != 400) throw answer.refusal();
      co_await loop::pause_for(kEngineQueryInterval);
      if (deadline.expired()) {
        throw answer.failure(ExitStatus::kTryAgain, "timed out: it still works on requests");
      }
    }
  }

  awaitable<void> wait_until_idle(Deadline deadline, bool is_unused) {
    for (;;) {
      const std::optional<bool> idle = co_await is_idle(deadline);
      if (idle.value_or(is_unused)) co_return;
      if (!idle) {
        throw Error(ExitStatus::kConfig,
                    fmt::format("{}: cannot tell whether it is busy: SGLang without a pause needs "
                                "--enable-metrics",
                                kSleepStep));
      }
      co_await loop::pause_for(kEngineQueryInterval);
      if (deadline.expired()) {
        throw Error(ExitStatus::kTryAgain,
                    fmt::format("{}: timed out: it still works on requests", kSleepStep));
      }
    }
  }

  EngineApi api_;
  bool alone_;
  Stage stage_;
  /// True until the first sleep or wake.
  bool unused_ = true;
};

}  // namespace

std::unique_ptr<EngineDriver> drive_sglang(const std::string& url, bool alone) {
  return std::make_unique<SglangDriver>(url, alone);
}

}  // namespace fo::engine
