// What a thousand workers cost one fo-canary, at its usual intervals, and what its checks cost a
// worker, beside what fo-plan canary computes. One process serves all engines. Usage:
// canary_workers [--json FILE] [--quick] [RUNS]
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "canary/pipeline/fleet.h"
#include "canary/pipeline/hosts.h"
#include "loop/spawn.h"
#include "plan/canary.h"
#include "report.h"
#include "usage.h"

namespace {

using namespace fo;
using namespace fo::pipeline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kQuestions = 40;
constexpr plan::Seconds kInterval{30};
// What the engines take for a prompt, and for each further token.
constexpr milliseconds kFirstToken{20};
constexpr milliseconds kGap{5};

struct Costs {
  std::vector<double> cpu_percent;
  std::vector<double> memory_mib;
  std::vector<double> milliseconds_per_question;
  std::vector<double> questions_per_minute;
  std::vector<double> tokens_per_minute;
  std::vector<double> requests_per_minute;
  /// The mean of all questions.
  plan::CanaryQuestion question;
};

// What was done until now.
struct Totals {
  Clock::time_point at;
  double cpu;
  double questions;
  double seconds_of_questions;
  double tokens;
  double requests;
};

class Canary {
 public:
  Canary(std::size_t workers, seconds period)
      : fleet_(make_folder()), period_(period), hosts_(loop_.get_executor(), workers) {}

  Costs measure(std::size_t runs) {
    std::exception_ptr failure;
    loop::spawn(loop_, run(runs), [&](std::exception_ptr error) {
      failure = std::move(error);
      loop_.stop();
    });
    loop_.run();
    fleet_.stop();
    remove_folder(fleet_.folder());
    if (failure) std::rethrow_exception(failure);
    return costs_;
  }

 private:
  awaitable<void> run(std::size_t runs) {
    co_await fleet_.learn(hosts_.urls()[0], hosts_.urls()[1], kQuestions);
    for (const std::string& url : hosts_.urls()) co_await fleet_.add(url);
    costs_.question = mean_question();
    hosts_.each([](oracle::Knobs& knobs) {
      knobs.first_token = kFirstToken;
      knobs.gap = kGap;
    });
    fleet_.watch({"-q"});
    // An interval later, each worker was asked, and its questions are spread over the next one.
    co_await loop::pause_for(period_);
    Totals before = co_await totals();
    for (std::size_t i = 0; i < runs; ++i) {
      co_await loop::pause_for(period_);
      const Totals after = co_await totals();
      const double time = milliseconds_between(before.at, after.at) / 1000;
      const double minutes = static_cast<double>(hosts_.urls().size()) * time / 60;
      costs_.cpu_percent.push_back(100 * (after.cpu - before.cpu) / time);
      costs_.memory_mib.push_back(bench::resident_mib(fleet_.canary().pid()));
      costs_.milliseconds_per_question.push_back(
          1000 * (after.seconds_of_questions - before.seconds_of_questions) /
          std::max(1.0, after.questions - before.questions));
      costs_.questions_per_minute.push_back((after.questions - before.questions) / minutes);
      costs_.tokens_per_minute.push_back((after.tokens - before.tokens) / minutes);
      costs_.requests_per_minute.push_back((after.requests - before.requests) / minutes);
      before = after;
    }
  }

  [[nodiscard]] plan::CanaryQuestion mean_question() const {
    const auto file = nlohmann::json::parse(os::read_file(fleet_.canaries(), 64 * base::kMiB));
    std::size_t prompts = 0;
    std::size_t answers = 0;
    const nlohmann::json& canaries = file.at("canaries");
    for (const nlohmann::json& canary : canaries) {
      prompts += canary.at("prompt_token_ids").size();
      answers += canary.at("answer").size();
    }
    return {.prompt = prompts / canaries.size(), .answer = answers / canaries.size()};
  }

  awaitable<Totals> totals() {
    const std::string page = co_await fleet_.canary_metrics();
    const std::string name = "dynamo_health_check_duration_seconds";
    const std::string content = "check_type=\"content\"";
    Totals totals{.at = Clock::now(),
                  .cpu = bench::cpu_seconds(fleet_.canary().pid()),
                  .questions = sum_of(page, name + "_count", content),
                  .seconds_of_questions = sum_of(page, name + "_sum", content),
                  .tokens = 0,
                  .requests = 0};
    for (std::size_t i = 0; i < hosts_.urls().size(); ++i) {
      const oracle::Counts counts = hosts_.engine(i).counts();
      totals.tokens += static_cast<double>(counts.prompt_tokens + counts.generation_tokens);
      totals.requests += static_cast<double>(counts.requests);
    }
    co_return totals;
  }

  Fleet fleet_;
  const seconds period_;
  boost::asio::io_context loop_{1};
  Hosts hosts_;
  Costs costs_;
};

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "canary_workers", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const std::size_t runs = bench::parse_runs(arguments, arguments.quick ? 1 : 2);
        const std::size_t workers = arguments.quick ? 20 : 1000;
        if (os::raise_fd_limit() < 4 * workers + 100) {
          return report.skip("a canary of many workers", "too few open files are allowed");
        }
        const Costs costs = Canary(workers, seconds(arguments.quick ? 2 : 30)).measure(runs);
        const std::string of = " of " + std::to_string(workers) + " workers";
        const auto add = [&](const std::string& what, const char* unit,
                             const std::vector<double>& values, bench::Aim aim,
                             std::optional<double> planned = {}) {
          bench::Values peer;
          if (planned) peer = {"fo-plan", {*planned}};
          report.row(what, unit, {"fo-canary", values}, peer, aim);
          std::printf("%s: %.1f%s%s", what.c_str(), bench::median(values), *unit == 0 ? "" : " ",
                      unit);
          if (planned) std::printf("; fo-plan: %.1f", *planned);
          std::puts("");
        };
        add("CPU of a canary" + of, "%", costs.cpu_percent, bench::value_at_most(100));
        add("memory of a canary" + of, "MiB", costs.memory_mib, bench::value_at_most(256));
        const double prefill =
            static_cast<double>(costs.question.prompt) / plan::Seconds(kFirstToken).count();
        const plan::Seconds time = plan::question_time(costs.question, prefill, kGap);
        add("a question to a worker", "ms", costs.milliseconds_per_question, {},
            1000 * time.count());
        std::vector<double> shares;
        for (std::size_t i = 0; i < costs.questions_per_minute.size(); ++i) {
          shares.push_back(100 * costs.questions_per_minute[i] *
                           costs.milliseconds_per_question[i] / 60'000);
        }
        add("questions to a worker in a minute", "", costs.questions_per_minute, {},
            plan::Seconds(60) / kInterval * (1 + plan::kSamplerShare));
        add("part of a worker's time for questions", "%", shares, {},
            100 * plan::share_of_questions(kInterval, time));
        // The token of an idle worker is asked for, too.
        add("requests to a worker in a minute", "", costs.requests_per_minute, {});
        add("tokens of a worker in a minute", "", costs.tokens_per_minute, {},
            plan::question_tokens_per_minute(kInterval, costs.question));
      });
}
