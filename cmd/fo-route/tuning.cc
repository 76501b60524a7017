#include "tuning.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "cli/options.h"

namespace fo::fo_route {
namespace {

using base::ByteCount;
using base::Duration;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kDay = hours(24);
constexpr std::uint64_t kMany = 1'000'000;

class Tuning {
 public:
  explicit Tuning(CLI::App& app) : app_(app) {}

  void time(const std::string& name, Duration& value, Duration min, Duration max) {
    const auto read = [name](const std::string& text) -> std::optional<Duration> {
      return cli::read_duration("--" + name, text);
    };
    add(name, "DURATION", value, min, max, read, base::format_duration);
  }
  void count(const std::string& name, std::uint64_t& value, std::uint64_t min, std::uint64_t max) {
    add(name, "N", value, min, max, base::parse_uint,
        [](std::uint64_t number) { return std::to_string(number); });
  }
  void number(const std::string& name, double& value, double min, double max) {
    add(name, "NUMBER", value, min, max, base::parse_number,
        [](double number) { return fmt::format("{}", number); });
  }
  void size(const std::string& name, ByteCount& value, ByteCount min, ByteCount max) {
    add(name, "SIZE", value, min, max, base::parse_size, cli::size_text);
  }

 private:
  template <typename Value, typename Read, typename Show>
  void add(const std::string& name, const char* type, Value& value, Value min, Value max, Read read,
           Show show) {
    const std::string option = "--" + name;
    const auto store = [=, &value](const std::string& text) {
      const std::optional<Value> given = read(text);
      // NaN is in no range.
      if (!given || !(*given >= min && *given <= max)) {
        throw CLI::ValidationError(option,
                                   "'" + text + "': expected " + show(min) + " to " + show(max));
      }
      value = *given;
    };
    app_.add_option_function<std::string>(option, store, "")
        ->default_str(show(value))
        ->type_name(type)
        ->group("");
  }

  CLI::App& app_;
};

std::string level_key(std::size_t level, const std::string& key) {
  return "level-" + std::to_string(level) + "-" + key;
}

}  // namespace

void declare_tuning(CLI::App& app, route::ServeOptions& serve) {
  Tuning add(app);
  route::RouterOptions& router = serve.router;
  route::DispatchOptions& dispatch = router.dispatch;

  // Sets, and the choice of a worker.
  add.time("set-takeover", dispatch.takeover, Duration(0), kDay);
  add.count("prompt-bytes-per-token", router.rules.bytes_per_token, 1, 64);
  add.count("prompt-part-tokens", router.rules.tokens_per_part, 0, kMany);
  add.count("first-answer-tokens", dispatch.first_answer, 1, kMany);
  add.count("known-prefixes", dispatch.choice.known_prefixes, 0, 100 * kMany);
  add.number("max-load", dispatch.choice.max_load, 1, 1000);
  add.count("few-workers", dispatch.choice.few_workers, 2, kMany);

  // Faults and overload of workers.
  add.time("reconnect", serve.monitor.retry, milliseconds(1), hours(1));
  add.time("reconnect-slow", serve.monitor.slow_retry, milliseconds(1), hours(1));
  add.time("reconnect-slow-after", serve.monitor.slow_after, Duration(0), kDay);
  add.time("stall", router.times.stall, milliseconds(100), hours(1));
  add.count("stall-gaps", router.times.stall_gaps, 1, 1000);
  add.count("first-token-rate", router.times.prefill_rate, 1, 1000 * kMany);
  add.time("overload", router.overload.pause, Duration(0), hours(1));
  add.time("overload-max", router.overload.max_pause, Duration(0), hours(1));
  add.time("unavailable-after", router.overload.unavailable, milliseconds(100), hours(1));

  // The table of health.
  fleet::HealthRules& health = serve.source.health;
  add.number("health-suspicious-weight", health.suspicious_weight, 0.01, 1);
  add.count("health-suspicious-successes", health.suspicious_successes, 1, 1000);
  add.count("health-faults", health.faults_in_row, 1, 1000);
  add.time("health-window", health.window, seconds(1), hours(1));
  add.count("health-window-outcomes", health.window_outcomes, 0, kMany);
  add.number("health-window-share", health.fault_share, 0, 1);
  add.time("health-cooldown", health.cool_down, milliseconds(1), hours(1));
  add.time("health-cooldown-max", health.max_cool_down, milliseconds(1), kDay);
  add.number("health-cooldown-spread", health.jitter, 0, 0.9);
  add.count("health-probation-successes", health.probation_successes, 1, 1000);
  add.time("health-rise", health.rise, Duration(0), hours(1));
  add.time("health-forget", health.forget, seconds(1), kDay);
  add.time("probation-lease", dispatch.lease, seconds(1), kDay);
  add.number("max-out", dispatch.max_out, 0, 1);

  // Retries, and answers that continue on another worker.
  add.count("poison-deaths", dispatch.poison.deaths, 2, 100);
  add.time("poison-time", dispatch.poison.time, Duration(0), kDay);
  add.number("budget-resumes", dispatch.budget.resumes, 0, 1);
  add.count("budget-min-resumes", dispatch.budget.min_resumes, 1, kMany);
  add.number("budget-retries", dispatch.budget.retries, 0, 10);
  add.count("budget-min-retries", dispatch.budget.min_retries, 1, kMany);
  add.time("budget-time", dispatch.budget.time, seconds(1), hours(1));
  add.count("max-retries", dispatch.budget.max_retries_per_request, 0, 100);
  add.time("resume-comments", router.resume.comments, seconds(1), hours(1));
  add.count("resume-min-tokens", router.resume.min_tokens, 0, kMany);

  // Admission.
  add.number("share-premium", dispatch.queue.shares[plan::kPremium], 0.001, 1000);
  add.number("share-standard", dispatch.queue.shares[plan::kStandard], 0.001, 1000);
  add.number("share-best-effort", dispatch.queue.shares[plan::kBestEffort], 0.001, 1000);
  add.number("queue-min-order", dispatch.queue.min_order, 0, 1);
  add.time("retry-after-max", dispatch.queue.max_retry_after, seconds(1), kDay);
  add.number("retry-after-spread", dispatch.queue.retry_after_spread, 0, 0.9);

  // Degradation.
  plan::DegradationRules& rules = router.degradation;
  for (std::size_t level = 1; level < rules.levels.size(); ++level) {
    plan::DegradationLevel& one = rules.levels[level];
    add.number(level_key(level, "enter"), one.enter_below, 0.001, 1000);
    add.number(level_key(level, "leave"), one.leave_above, 0.001, 1000);
    add.number(level_key(level, "concurrency"), one.setting.concurrency_factor, 0.01, 1);
    add.number(level_key(level, "deadlines"), one.setting.deadline_factor, 0.1, 100);
  }
  add.number("level-3-standard", rules.levels[3].setting.admitted_share[plan::kStandard], 0, 1);
  add.number("level-4-refuse-all", rules.refuse_all_below, 0, 1000);
  add.time("level-leave-after", rules.leave_after, Duration(0), kDay);
  add.time("demand-time", router.demand.time, seconds(20), hours(1));
  add.number("demand-max", router.demand.max_factor, 1, 1000);

  // Streams.
  add.size("client-kept", serve.limits.kept_bytes, 64 * base::kKiB, base::kGiB);
  add.size("event-max", router.exchange.event, base::kKiB, base::kGiB);
  add.size("first-event-max", router.exchange.first_event, base::kKiB, base::kGiB);
  add.size("answer-max", router.exchange.whole, base::kKiB, base::kGiB);
}

void check_tuning(const route::ServeOptions& serve) {
  const auto expect = [](bool is_so, const std::string& key, const std::string& expected) {
    if (is_so) return;
    throw base::Error(base::ExitStatus::kUsage, "--" + key + ": expected " + expected);
  };
  const fleet::HealthRules& health = serve.source.health;
  expect(serve.monitor.slow_retry >= serve.monitor.retry, "reconnect-slow", "at least --reconnect");
  expect(serve.router.overload.max_pause >= serve.router.overload.pause, "overload-max",
         "at least --overload");
  expect(health.max_cool_down >= health.cool_down, "health-cooldown-max",
         "at least --health-cooldown");
  expect(serve.router.exchange.first_event >= serve.router.exchange.event, "first-event-max",
         "at least --event-max");
  const plan::DegradationRules& rules = serve.router.degradation;
  for (std::size_t level = 1; level < rules.levels.size(); ++level) {
    const plan::DegradationLevel& one = rules.levels[level];
    expect(one.leave_above > one.enter_below, level_key(level, "leave"),
           "more than --" + level_key(level, "enter"));
    expect(level == 1 || one.enter_below < rules.levels[level - 1].enter_below,
           level_key(level, "enter"), "less than --" + level_key(level - 1, "enter"));
  }
  expect(rules.refuse_all_below <= rules.levels.back().enter_below, "level-4-refuse-all",
         "at most --level-4-enter");
}

}  // namespace fo::fo_route
