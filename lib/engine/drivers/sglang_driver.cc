#include "engine/drivers/sglang_driver.h"

#include <fmt/format.h>

#include "loop/pause.h"

namespace fo::engine {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using boost::asio::awaitable;

SglangDriver::SglangDriver(const std::string& url, bool alone)
    : api_(url), alone_(alone), stage_(alone ? Stage::kServing : Stage::kReleasing) {}

void SglangDriver::enter(Stage stage) {
  if (alone_) stage_ = stage;
}

awaitable<std::optional<std::string>> SglangDriver::check_health(Deadline deadline) {
  if (stage_ == Stage::kServing) return api_.check_health("/health", deadline);
  // Only the HTTP server answers this request.
  return api_.check_health("/ping", deadline);
}

awaitable<void> SglangDriver::sleep(Deadline deadline, SleepMode mode) {
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

awaitable<void> SglangDriver::wake(Deadline deadline) {
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

awaitable<void> SglangDriver::prove(Deadline deadline) { return api_.prove(deadline); }

awaitable<std::optional<bool>> SglangDriver::is_idle(Deadline deadline) {
  return api_.is_idle("sglang:num_running_reqs", "sglang:num_queue_reqs", deadline);
}

awaitable<std::optional<double>> SglangDriver::progress(Deadline deadline) {
  return api_.count("sglang:generation_tokens_total", deadline);
}

// False if this version does not have the request.
awaitable<bool> SglangDriver::post_optional(std::string_view step, std::string_view path,
                                            Deadline deadline) const {
  const EngineReply answer = co_await api_.post(step, path, "{}", deadline);
  if (!answer.ok() && answer.status != 404) throw answer.refusal();
  co_return answer.ok();
}

// SGLang refuses a flush with 400 while there are requests.
awaitable<void> SglangDriver::flush(Deadline deadline) const {
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

awaitable<void> SglangDriver::wait_until_idle(Deadline deadline, bool is_unused) {
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

}  // namespace fo::engine
