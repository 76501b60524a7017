#include "engine/drivers/vllm_driver.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "json/object.h"
#include "loop/pause.h"

namespace fo::engine {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;

namespace {

// Throws for a failed answer. The status is 404 if vLLM was started without the sleep mode.
void check(const EngineReply& answer) {
  if (answer.status == 404) {
    throw answer.failure(ExitStatus::kConfig,
                         "status 404: vLLM needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1");
  }
  if (!answer.ok()) throw answer.refusal();
}

}  // namespace

VllmDriver::VllmDriver(const std::string& url, std::optional<int> sleep_level)
    : api_(url), sleep_level_(sleep_level) {}

awaitable<std::optional<std::string>> VllmDriver::check_health(Deadline deadline) {
  return api_.check_health("/health", deadline);
}

awaitable<void> VllmDriver::sleep(Deadline deadline, SleepMode mode) {
  if (!sleep_level_) co_return;
  const bool asleep = co_await is_sleeping(kSleepStep, deadline);
  if (asleep) co_return;
  // vLLM reads the query; a body is ignored, and the level would be 1.
  const std::string path = fmt::format("/sleep?level={}&mode={}", *sleep_level_,
                                       mode == SleepMode::kFinish ? "wait" : "abort");
  awake_ = Awake::kNothing;
  co_await control(kSleepStep, path, "", deadline);
  co_await wait_until(kSleepStep, true, deadline);
}

awaitable<void> VllmDriver::wake(Deadline deadline) {
  if (!sleep_level_) co_return;
  // A wake of an engine that is awake can crash it.
  const bool asleep = co_await is_sleeping(kWakeStep, deadline);
  if (!asleep && awake_ != Awake::kAll) co_return;
  if (*sleep_level_ == 2) co_return co_await wake_by_halves(deadline);
  co_await control(kWakeStep, "/wake_up", "", deadline);
  co_await wait_until(kWakeStep, false, deadline);
}

// The weights are gone, so they are loaded before the KV cache allocates its memory.
awaitable<void> VllmDriver::wake_by_halves(Deadline deadline) {
  if (awake_ == Awake::kNothing) {
    co_await wake_half("weights", Awake::kWeights, deadline);
  }
  if (awake_ == Awake::kWeights) {
    const std::string body = R"({"method":"reload_weights"})";
    co_await control(kWakeStep, "/collective_rpc", body, deadline);
    co_await wake_half("kv_cache", Awake::kAll, deadline);
  }
  co_await wait_until(kWakeStep, false, deadline);
  co_await control(kWakeStep, "/reset_prefix_cache", "", deadline);
  awake_ = Awake::kNothing;
}

// Only a refusal proves that this half still sleeps.
awaitable<void> VllmDriver::wake_half(std::string_view tag, Awake after, Deadline deadline) {
  const std::string path = fmt::format("/wake_up?tags={}", tag);
  const Awake before = std::exchange(awake_, after);
  const EngineReply answer = co_await api_.post(kWakeStep, path, "", deadline);
  if (!answer.ok()) awake_ = before;
  check(answer);
}

awaitable<void> VllmDriver::prove(Deadline deadline) { return api_.prove(deadline); }

awaitable<std::optional<bool>> VllmDriver::is_idle(Deadline deadline) {
  return api_.is_idle("vllm:num_requests_running", "vllm:num_requests_waiting", deadline);
}

awaitable<std::optional<double>> VllmDriver::progress(Deadline deadline) {
  return api_.count("vllm:generation_tokens_total", deadline);
}

awaitable<bool> VllmDriver::is_sleeping(std::string_view step, Deadline deadline) const {
  const EngineReply answer = co_await api_.get(step, "/is_sleeping", deadline);
  check(answer);
  const nlohmann::json object = object_in(answer.body);
  const nlohmann::json* found = fo::json::find(object, "is_sleeping");
  if (found == nullptr || !found->is_boolean()) {
    throw answer.failure(ExitStatus::kSoftware, "not true or false");
  }
  co_return found->get<bool>();
}

// Some versions answer before the step is complete.
awaitable<void> VllmDriver::wait_until(std::string_view step, bool asleep,
                                       Deadline deadline) const {
  for (;;) {
    const bool now = co_await is_sleeping(step, deadline);
    if (now == asleep) co_return;
    co_await loop::pause_for(kEngineQueryInterval);
    if (deadline.expired()) {
      throw base::Error(
          ExitStatus::kTryAgain,
          fmt::format("{}: timed out: it reports that it is {}", step, now ? "asleep" : "awake"));
    }
  }
}

awaitable<void> VllmDriver::control(std::string_view step, std::string_view path,
                                    std::string_view body, Deadline deadline) const {
  const EngineReply answer = co_await api_.post(step, path, body, deadline);
  check(answer);
}

}  // namespace fo::engine
