#include "engine/drivers/dynamo_driver.h"

#include <fmt/format.h>

namespace fo::engine {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;

DynamoDriver::DynamoDriver(const std::string& system_url, int sleep_level, bool alone)
    : api_(system_url),
      sleep_level_(sleep_level),
      alone_(alone),
      stage_(alone ? Stage::kServing : Stage::kUnknown) {}

void DynamoDriver::enter(Stage stage) {
  if (alone_) stage_ = stage;
}

awaitable<std::optional<std::string>> DynamoDriver::check_health(Deadline deadline) {
  return api_.check_health("/health", deadline);
}

awaitable<void> DynamoDriver::sleep(Deadline deadline, SleepMode) {
  if (stage_ == Stage::kAsleep) co_return;
  enter(Stage::kUnknown);
  const std::string body = fmt::format(R"({{"level":{}}})", sleep_level_);
  co_await control(kSleepStep, "sleep", body, deadline);
  enter(Stage::kAsleep);
}

awaitable<void> DynamoDriver::wake(Deadline deadline) {
  if (stage_ == Stage::kServing) co_return;
  enter(Stage::kUnknown);
  const std::string body = "{}";
  co_await control(kWakeStep, "wake_up", body, deadline);
  enter(Stage::kServing);
}

awaitable<void> DynamoDriver::prove(Deadline deadline) {
  const EngineReply answer = co_await api_.get(kProveStep, "/health", deadline);
  if (answer.status != 200) throw answer.refusal();
  const std::optional<std::string> state = text_at(answer.body, {"endpoints", "generate"});
  if (!state) {
    throw answer.failure(
        ExitStatus::kSoftware,
        "its health has no endpoint 'generate'; use a command to prove it instead");
  }
  if (*state != "ready") {
    throw answer.failure(ExitStatus::kSoftware, "endpoint 'generate' is " + base::quoted(*state));
  }
}

awaitable<std::optional<bool>> DynamoDriver::is_idle(Deadline) { co_return std::nullopt; }

awaitable<void> DynamoDriver::control(std::string_view step, std::string_view name,
                                      std::string body, Deadline deadline) const {
  std::string path = fmt::format("/engine/control/{}", name);
  EngineReply answer = co_await api_.post(step, path, body, deadline);
  if (answer.status == 404) {
    // Older versions have this path.
    path = fmt::format("/engine/{}", name);
    answer = co_await api_.post(step, path, body, deadline);
  }
  if (answer.status == 404) {
    throw answer.failure(ExitStatus::kConfig,
                         "status 404: this worker has no routes to sleep and to wake up");
  }
  if (!answer.ok()) throw answer.refusal();
  // A failed step is also answered with 200.
  if (text_at(answer.body, {"status"}) == "error") {
    throw answer.failure(ExitStatus::kSoftware, reason_in(answer.body));
  }
}

}  // namespace fo::engine
