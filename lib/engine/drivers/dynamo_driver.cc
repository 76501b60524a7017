// Drives a Dynamo worker through its system status server. The worker has no OpenAI API: the
// reported state of its endpoint is the closest to a proof. It does not report whether it sleeps,
// so the driver remembers its own actions.
#include <fmt/format.h>

#include <string_view>

#include "engine/drivers/drivers.h"
#include "engine/drivers/engine_api.h"

namespace fo::engine {

using base::Deadline;
using base::ExitStatus;
using boost::asio::awaitable;

namespace {

class DynamoDriver final : public EngineDriver {
 public:
  DynamoDriver(const std::string& system_url, int sleep_level, bool alone)
      : api_(system_url),
        sleep_level_(sleep_level),
        alone_(alone),
        stage_(alone ? Stage::kServing : Stage::kUnknown) {}

  awaitable<std::optional<std::string>> check_health(Deadline deadline) override {
    return api_.check_health("/health", deadline);
  }

  awaitable<void> sleep(Deadline deadline, SleepMode) override {
    if (stage_ == Stage::kAsleep) co_return;
    enter(Stage::kUnknown);
    const std::string body = fmt::format(R"({{"level":{}}})", sleep_level_);
    co_await control(kSleepStep, "sleep", body, deadline);
    enter(Stage::kAsleep);
  }

  awaitable<void> wake(Deadline deadline) override {
    if (stage_ == Stage::kServing) co_return;
    enter(Stage::kUnknown);
    const std::string body = "{}";
    co_await control(kWakeStep, "wake_up", body, deadline);
    enter(Stage::kServing);
  }

  // The worker must report its endpoint "generate" as ready.
  awaitable<void> prove(Deadline deadline) override {
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

  awaitable<std::optional<bool>> is_idle(Deadline) override { co_return std::nullopt; }

 private:
  // kUnknown from the beginning of a step until it succeeds.
  enum class Stage { kServing, kUnknown, kAsleep };

  void enter(Stage stage) {
    if (alone_) stage_ = stage;
  }

  awaitable<void> control(std::string_view step, std::string_view name, std::string body,
                          Deadline deadline) const {
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

  EngineApi api_;
  int sleep_level_;
  bool alone_;
  Stage stage_;
};

}  // namespace

std::unique_ptr<EngineDriver> drive_dynamo(const std::string& system_url, int sleep_level,
                                           bool alone) {
  return std::make_unique<DynamoDriver>(system_url, sleep_level, alone);
}

}  // namespace fo::engine
