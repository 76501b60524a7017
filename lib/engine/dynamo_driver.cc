#include "engine/dynamo_driver.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace fo::engine {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;
using nlohmann::json;

DynamoDriver::DynamoDriver(const std::string& system_url, int sleep_level)
    : api_(system_url), sleep_level_(sleep_level) {}

awaitable<std::optional<std::string>> DynamoDriver::check_health(Deadline deadline) {
  return api_.check_health("/health", deadline);
}

awaitable<void> DynamoDriver::sleep(Deadline deadline, SleepMode) {
  return control(kSleepStep, "sleep", fmt::format(R"({{"level":{}}})", sleep_level_), deadline);
}

awaitable<void> DynamoDriver::wake(Deadline deadline) {
  return control(kWakeStep, "wake_up", "{}", deadline);
}

awaitable<void> DynamoDriver::prove(Deadline deadline) {
  const EngineReply answer = co_await api_.get(kProveStep, "/health", deadline);
  if (answer.status != 200) throw answer.refusal();
  const json health = json::parse(answer.body, nullptr, false);
  const json::json_pointer endpoint("/endpoints/generate");
  if (!health.is_object() || !health.contains(endpoint) || health[endpoint] == "ready") co_return;
  throw answer.failure(ExitStatus::kSoftware,
                       "endpoint 'generate' is " + one_line(health[endpoint].dump()));
}

awaitable<std::optional<bool>> DynamoDriver::is_idle(Deadline) { co_return std::nullopt; }

awaitable<void> DynamoDriver::control(std::string_view step, std::string_view name,
                                      std::string body, Deadline deadline) const {
  std::string path = fmt::format("/engine/control/{}", name);
  EngineReply answer = co_await api_.post(step, path, body, deadline);
  if (answer.status == 404) {
    // Where it was before it moved.
    path = fmt::format("/engine/{}", name);
    answer = co_await api_.post(step, path, body, deadline);
  }
  if (answer.status == 404) {
    throw answer.failure(ExitStatus::kConfig,
                         "status 404: this worker has no routes to sleep and to wake up");
  }
  if (!answer.ok()) throw answer.refusal();
  // A step that failed is answered with 200, too.
  const json body_of = json::parse(answer.body, nullptr, false);
  if (body_of.is_object() && body_of.value("status", json()) == "error") {
    throw answer.failure(ExitStatus::kSoftware, reason_in(answer.body));
  }
}

}  // namespace fo::engine
