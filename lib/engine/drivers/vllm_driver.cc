// Drives vLLM, and fo-refengine with the same API, through the sleep mode. The health check does
// not detect a hung core; prove() does.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/drivers/drivers.h"
#include "engine/drivers/engine_api.h"
#include "json/object.h"
#include "loop/pause.h"

namespace fo::engine {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;

namespace {

class VllmDriver final : public EngineDriver {
 public:
  VllmDriver(const std::string& url, std::optional<int> sleep_level)
      : api_(url), sleep_level_(sleep_level) {}

  awaitable<std::optional<std::string>> check_health(Deadline deadline) override {
    return api_.check_health("/health", deadline);
  }

  awaitable<void> sleep(Deadline deadline, SleepMode mode) override {
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

  /// After a wake from level 2 that failed between its halves, another wake continues from there.
  awaitable<void> wake(Deadline deadline) override {
    if (!sleep_level_) co_return;
    // A wake of an engine that is awake can crash it.
    const bool asleep = co_await is_sleeping(kWakeStep, deadline);
    if (!asleep && awake_ != Awake::kAll) co_return;
    if (*sleep_level_ == 2) co_return co_await wake_by_halves(deadline);
    co_await control(kWakeStep, "/wake_up", "", deadline);
    co_await wait_until(kWakeStep, false, deadline);
  }

  awaitable<void> prove(Deadline deadline) override { return api_.prove(deadline); }

  awaitable<std::optional<bool>> is_idle(Deadline deadline) override {
    return api_.is_idle("vllm:num_requests_running", "vllm:num_requests_waiting", deadline);
  }

  awaitable<std::optional<double>> progress(Deadline deadline) override {
    return api_.count("vllm:generation_tokens_total", deadline);
  }

 private:
  /// The progress of a wake from level 2 that has not succeeded.
  enum class Awake { kNothing, kWeights, kAll };

  // Throws for a failed answer. The status is 404 if vLLM was started without the sleep mode.
  static void check(const EngineReply& answer) {
    if (answer.status == 404) {
      throw answer.failure(ExitStatus::kConfig,
                           "status 404: vLLM needs --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1");
    }
    if (!answer.ok()) throw answer.refusal();
  }

  // The weights are gone, so they are loaded before the KV cache allocates its memory.
  awaitable<void> wake_by_halves(Deadline deadline) {
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
  awaitable<void> wake_half(std::string_view tag, Awake after, Deadline deadline) {
    const std::string path = fmt::format("/wake_up?tags={}", tag);
    const Awake before = std::exchange(awake_, after);
    const EngineReply answer = co_await api_.post(kWakeStep, path, "", deadline);
    if (!answer.ok()) awake_ = before;
    check(answer);
  }

  awaitable<bool> is_sleeping(std::string_view step, Deadline deadline) const {
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
  awaitable<void> wait_until(std::string_view step, bool asleep, Deadline deadline) const {
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

  awaitable<void> control(std::string_view step, std::string_view path, std::string_view body,
                          Deadline deadline) const {
    const EngineReply answer = co_await api_.post(step, path, body, deadline);
    check(answer);
  }

  EngineApi api_;
  std::optional<int> sleep_level_;
  Awake awake_ = Awake::kNothing;
};

}  // namespace

std::unique_ptr<EngineDriver> drive_vllm(const std::string& url, std::optional<int> sleep_level) {
  return std::make_unique<VllmDriver>(url, sleep_level);
}

}  // namespace fo::engine
