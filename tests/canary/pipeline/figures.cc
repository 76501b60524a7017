// How often fo-canary is wrong, and how soon it is right, against what fo-plan predicts:
//
// - false convictions of good workers whose log-probabilities have as much noise as those that the
//   questions were learned from;
// - the time until a worker with wrong tokens is convicted, and until one whose log-probabilities
//   drift is out;
// - convictions of good workers beside them;
// - the part of short faults that a check meets;
// - false drains, for checks that fail by chance.
//
//   canary_figures [--long] [--seed N]
//
// --long: 100,000 checks with noise in place of 3,000, an interval of 30 s in place of 5 s, and
// more rounds; it takes 20 to 30 minutes. The canary is the program; one process serves all
// engines. Only the false drains, of which there is one in thousands of days, are computed with the
// canary's table of health in place of the program. stdout has a line for each figure, and stderr
// the progress. Exit status 0: each figure is within its bound.
#include <cmath>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <set>

#include "canary/check/schedule.h"
#include "canary/judge/worker_health.h"
#include "canary/pipeline/fleet.h"
#include "canary/pipeline/hosts.h"
#include "loop/spawn.h"
#include "text/time_text.h"

namespace {

using namespace fo;
using namespace fo::pipeline;
using base::Deadline;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The noise of good engines.
constexpr double kNoise = 0.02;
// Observed counts of what is random are within this many standard deviations.
constexpr double kDeviations = 4;
// Time that a repetition, a vote and a busy machine may add to an interval, in seconds.
constexpr double kAllowance = 10;
constexpr std::size_t kQuestions = 40;

struct Settings {
  bool is_long = false;
  std::uint64_t seed = 1;

  [[nodiscard]] std::uint64_t checks() const { return is_long ? 100'000 : 3'000; }
  [[nodiscard]] seconds interval() const { return seconds(is_long ? 30 : 5); }
  [[nodiscard]] std::size_t rounds() const { return is_long ? 10 : 2; }
};

class Figures {
 public:
  explicit Figures(const Settings& settings)
      : settings_(settings), random_(settings.seed), hosts_(loop_.get_executor(), kEngines) {}

  bool run() {
    loop::spawn(loop_, measure(), [this](const std::exception_ptr& error) {
      if (error) wrong(error);
      loop_.stop();
    });
    loop_.run();
    for (Fleet& fleet : fleets_) {
      fleet.stop();
      remove_folder(fleet.folder());
    }
    return is_good_;
  }

 private:
  static constexpr std::size_t kEngines = 100;
  // Number of wrong workers at a time; the others outvote them.
  static constexpr std::size_t kAtOnce = 8;

  void wrong(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& failure) {
      std::printf("wrong: %s\n", failure.what());
    }
    is_good_ = false;
  }

  // Prints a line of the table; `is_good` is whether the figure is within its bound.
  template <typename... Values>
  void line(bool is_good, const char* format, Values... values) {
    if (!is_good) std::printf("wrong: ");
    std::printf(format, values...);
    std::printf("\n");
    std::fflush(stdout);
    is_good_ = is_good_ && is_good;
  }

  // Reports how far a figure is.
  static void progress(const char* figure, double done, double all) {
    std::fprintf(stderr, "canary_figures: %s: %.0f of %.0f\n", figure, done, all);
  }

  double uniform(double below) { return std::uniform_real_distribution<double>(0, below)(random_); }
  awaitable<void> pause_for(double time) {
    const auto nanoseconds = static_cast<std::int64_t>(std::max(time, 0.0) * 1e9);
    return loop::pause_for(base::Duration(nanoseconds));
  }

  awaitable<void> measure() {
    hosts_.each([](oracle::Knobs& knobs) { knobs.logprob_noise = kNoise; });
    co_await false_convictions();
    co_await faults();
    false_drains();
  }

  // Returns fo-plan's figures for checks with these parameters.
  json plan(std::vector<std::string> parameters) {
    const std::string& folder = fleets_.back().folder();
    std::vector<std::string> argv{"canary", "--json"};
    argv.insert(argv.end(), parameters.begin(), parameters.end());
    Program program(folder, "plan", std::move(argv), false);
    if (program.wait(test::soon()) != 0) fail("fo-plan: see " + program.log());
    return json::parse(os::read_file(folder + "/plan.out", base::kMiB)).at("results");
  }

  // --- Good workers with noise.

  awaitable<void> false_convictions() {
    Fleet& fleet = fleets_.emplace_back(make_folder());
    co_await fleet.learn(hosts_.urls()[0], hosts_.urls()[1], kQuestions);
    constexpr std::size_t kWorkers = 40;
    for (std::size_t i = 0; i < kWorkers; ++i) co_await fleet.add(hosts_.urls()[i]);
    // Each worker is asked as often as it can answer.
    fleet.watch({"--interval", "20ms"});
    const std::string content = "fo_canary_checks_total{check_type=\"content\",outcome=\"";
    const auto wanted = static_cast<double>(settings_.checks());
    const Deadline deadline = Deadline::after(std::chrono::hours(1));
    std::string page;
    double done = 0;
    double reported = 0;
    while (done < wanted && !deadline.expired()) {
      co_await loop::pause_for(milliseconds(100));
      page = co_await fleet.canary_metrics();
      done = sum_of(page, content);
      if (done < reported + wanted / 10) continue;
      reported = done;
      progress("checks with noise", done, wanted);
    }
    const auto of = [&](const std::string& outcome) { return sum_of(page, content + outcome); };
    const double convictions = sum_of(page, "fo_canary_convictions_total{");
    const double different = of("mismatch") + of("drift");
    fleet.stop();
    line(convictions == 0 && different == 0 && of("pass") >= 0.9 * wanted,
         "false convictions in %.0f checks with noise up to %.3f: %.0f; mismatches and drifts: "
         "%.0f; passes: %.0f",
         of(""), kNoise, convictions, different, of("pass"));
  }

  // --- Faults of workers, at the real interval.

  struct Watched {
    /// By its last verdict.
    bool is_out = false;
    /// First times since its fault began.
    std::optional<Clock::time_point> convicted = {};
    std::optional<Clock::time_point> out = {};
  };

  awaitable<void> faults() {
    Fleet& fleet = fleets_.emplace_back(make_folder());
    co_await fleet.learn(hosts_.urls()[0], hosts_.urls()[1], kQuestions);
    for (const std::string& url : hosts_.urls()) {
      std::string id = co_await fleet.add(url);
      ids_.push_back(std::move(id));
    }
    fleet.watch({"--interval", interval_text()});
    loop::spawn(loop_, fleet.follow_verdicts([this](const fleet::Verdict& verdict) {
      Watched& worker = watched_[verdict.id];
      worker.is_out = verdict.weight <= 0;
      if (verdict.is_conviction() && !broken_.contains(verdict.id)) innocents_.insert(verdict.id);
      if (verdict.is_conviction() && !worker.convicted) worker.convicted = Clock::now();
      if (worker.is_out && !worker.out) worker.out = Clock::now();
    }));
    while (watched_.size() < kEngines) co_await loop::pause_for(milliseconds(20));
    co_await short_faults(fleet);
    co_await wrong_tokens(fleet);
    co_await drifts();
    fleet.stop();
    line(innocents_.empty(), "convictions of other workers meanwhile: %zu", innocents_.size());
  }
  [[nodiscard]] double interval() const {
    return static_cast<double>(settings_.interval().count());
  }
  static double seconds_since(Clock::time_point begin) {
    return milliseconds_between(begin, Clock::now()) / 1000;
  }
  [[nodiscard]] std::string interval_text() const {
    return std::to_string(settings_.interval().count()) + "s";
  }

  // All engines fail in all answers of over two tokens, so that only questions meet it, and again
  // at other times of the interval. The faults are shorter than the repetitions of a check, so that
  // no worker becomes suspicious and is asked sooner.
  awaitable<void> short_faults(Fleet& fleet) {
    constexpr double kLength = 1.5;
    // They begin at equal distances of the interval, though not in this order.
    const std::size_t faults = settings_.is_long ? 20 : 10;
    const double step = interval() * (settings_.is_long ? 7 : 11) / static_cast<double>(faults);
    const Clock::time_point start = Clock::now();
    double seen = 0;
    double chances = 0;
    double lasted = 0;
    for (std::size_t i = 0; i < faults; ++i) {
      co_await pause_for(static_cast<double>(i) * step - seconds_since(start));
      // The others are asked more often.
      const json before = co_await fleet.canary_state();
      std::set<std::string> healthy;
      for (const json& worker : before.at("workers")) {
        if (worker.at("health") == "healthy") healthy.insert(worker.at("id").get<std::string>());
      }
      chances += static_cast<double>(healthy.size());
      const std::string begin = text::format_time(std::chrono::system_clock::now());
      const Clock::time_point begun = Clock::now();
      hosts_.each([](oracle::Knobs& knobs) { knobs.fail = oracle::parse_fault("error@2"); });
      co_await pause_for(kLength);
      hosts_.each([](oracle::Knobs& knobs) { knobs.fail = {}; });
      lasted += seconds_since(begun);
      progress("short faults", static_cast<double>(i + 1), static_cast<double>(faults));
      // Until the answers of the last questions are noted.
      co_await loop::pause_for(seconds(2));
      const json state = co_await fleet.canary_state();
      for (const json& worker : state.at("workers")) {
        if (!healthy.contains(worker.at("id").get<std::string>())) continue;
        seen += std::ranges::any_of(worker.at("checks"), [&](const json& check) {
          return check.at("outcome") == "failed" && check.at("at") >= begin;
        });
      }
    }
    const double mean = lasted / static_cast<double>(faults);
    const auto transient = std::to_string(static_cast<int>(mean * 1000)) + "ms";
    const json predicted =
        plan({"--false-result", "0.001", "--interval", interval_text(), "--transient", transient});
    const auto chance = predicted.at("chance_to_see").get<double>();
    const double expected = chances * chance;
    const double bound = kDeviations * std::sqrt(expected * (1 - chance));
    line(std::abs(seen - expected) <= bound,
         "faults of %.2f s that a check met: %.0f of %.0f; fo-plan: %.0f, and within %.0f", mean,
         seen, chances, expected, bound);
  }

  using Found = std::function<std::optional<Clock::time_point>(const std::string& id)>;

  awaitable<void> wrong_tokens(Fleet& fleet) {
    const std::function<void(std::size_t)> make_wrong = [this](std::size_t engine) {
      oracle::Fault fault = oracle::parse_fault("wrong@0");
      fault.first = fault.last = random_() % 6;
      hosts_.engine(engine).knobs().fail = fault;
    };
    const Found convicted = [this](const std::string& id) { return watched_[id].convicted; };
    std::vector<double> times;
    for (std::size_t round = 0; round < settings_.rounds(); ++round) {
      co_await at_random_times(make_wrong);
      co_await until_found(convicted, times);
      progress("rounds of wrong tokens", static_cast<double>(round + 1),
               static_cast<double>(settings_.rounds()));
      for (const Begun& begun : begun_) {
        hosts_.engine(begun.engine).knobs().fail = {};
        const std::string old = ids_[begun.engine];
        co_await fleet.remove(old);
        const std::string url = hosts_.urls()[begun.engine];
        ids_[begun.engine] = co_await fleet.add(url);
      }
    }
    const json predicted = plan({"--false-result", "0.001", "--interval", interval_text()});
    const double longest = quantile(times, 1);
    line(times.size() == settings_.rounds() * kAtOnce && longest <= interval() + kAllowance,
         "wrong tokens until the conviction, %zu workers, interval %.0f s: median %.1f s, 90 %% "
         "%.1f s, longest %.1f s; fo-plan: at most %.0f s",
         times.size(), interval(), quantile(times, 0.5), quantile(times, 0.9), longest,
         predicted.at("mismatch_detection_s").get<double>());
  }

  awaitable<void> drifts() {
    std::vector<double> times;
    const std::function<void(std::size_t)> make_noisy = [this](std::size_t engine) {
      hosts_.engine(engine).knobs().logprob_noise = 2;
    };
    co_await at_random_times(make_noisy);
    const Found out = [this](const std::string& id) { return watched_[id].out; };
    co_await until_found(out, times);
    const json predicted = plan({"--false-result", "0.001", "--interval", interval_text()});
    const auto planned = predicted.at("drift_detection_s").get<double>();
    const double longest = quantile(times, 1);
    line(times.size() == kAtOnce && longest <= planned + kAllowance,
         "drift until the worker is out, %zu workers: median %.1f s, longest %.1f s; fo-plan: at "
         "most %.0f s",
         times.size(), quantile(times, 0.5), longest, planned);
  }

  struct Begun {
    std::size_t engine;
    Clock::time_point at;
  };

  // An engine whose worker is in, and that was not drawn before.
  awaitable<std::size_t> draw_engine() {
    const Deadline deadline = long_after();
    for (;;) {
      const std::size_t engine = random_() % kEngines;
      const bool is_drawn = std::ranges::any_of(
          begun_, [engine](const Begun& begun) { return begun.engine == engine; });
      if (!is_drawn && !watched_[ids_[engine]].is_out) co_return engine;
      if (deadline.expired()) fail("draw a worker to break: none is in");
      co_await loop::pause_for(milliseconds(1));
    }
  }

  // Breaks kAtOnce engines, each at a random time in an interval.
  awaitable<void> at_random_times(std::function<void(std::size_t engine)> make_wrong) {
    std::vector<double> times;
    for (std::size_t i = 0; i < kAtOnce; ++i) times.push_back(uniform(interval()));
    std::ranges::sort(times);
    begun_.clear();
    const Clock::time_point start = Clock::now();
    for (const double time : times) {
      co_await pause_for(time - seconds_since(start));
      const std::size_t engine = co_await draw_engine();
      watched_[ids_[engine]] = {};
      broken_.insert(ids_[engine]);
      make_wrong(engine);
      begun_.push_back({engine, Clock::now()});
    }
  }

  // Adds the seconds from the begin of each fault.
  awaitable<void> until_found(Found found, std::vector<double>& times) {
    const Deadline deadline = long_after();
    for (const Begun& begun : begun_) {
      const std::string& id = ids_[begun.engine];
      while (!found(id)) {
        if (deadline.expired()) fail("worker " + id + ": its fault is not found");
        co_await loop::pause_for(milliseconds(5));
      }
      times.push_back(milliseconds_between(begun.at, *found(id)) / 1000);
    }
  }

  // --- Checks that fail by chance, with the times that a canary would have.

  void false_drains() {
    const double chance = settings_.is_long ? 0.02 : 0.05;
    const double days = settings_.is_long ? 20'000 : 500;
    char text[16];
    std::snprintf(text, sizeof text, "%.2f", chance);
    const canary::Intervals intervals;
    canary::WorkerHealth health;
    double drains = 0;
    canary::Now now{.steady = {}, .wall = {}};
    const auto end = std::chrono::duration_cast<base::Duration>(
        std::chrono::duration<double, std::ratio<86400>>(days));
    while (now.steady < end) {
      const auto before = health.state();
      const bool fails = uniform(1) < chance;
      health.apply(fails ? canary::Finding::kFault : canary::Finding::kPass, {.reason = "chance"},
                   now, uniform(1));
      const auto after = health.state();
      if (after == fleet::HealthState::kUnhealthy && before == fleet::HealthState::kSuspicious) {
        ++drains;
      }
      const bool is_suspect =
          after == fleet::HealthState::kSuspicious || after == fleet::HealthState::kProbation;
      const base::Duration pause = is_suspect ? intervals.content_of_suspect : intervals.content;
      now.steady += pause;
      now.wall += std::chrono::duration_cast<text::WallTime::duration>(pause);
    }
    const json predicted = plan({"--false-result", text});
    const double expected = days * predicted.at("false_drains_per_day").get<double>();
    const double bound = kDeviations * std::sqrt(expected);
    line(std::abs(drains - expected) <= bound,
         "false drains in %.0f days, checks that fail with a chance of %s: %.0f; fo-plan: %.0f, "
         "and within %.0f",
         days, text, drains, expected, bound);
  }

  const Settings settings_;
  std::mt19937_64 random_;
  bool is_good_ = true;
  /// Before the loop, whose coroutines use them to its end.
  std::deque<Fleet> fleets_;
  boost::asio::io_context loop_{1};
  Hosts hosts_;
  std::vector<std::string> ids_;
  std::map<std::string, Watched> watched_;
  /// Ids of the workers that were broken.
  std::set<std::string> broken_;
  /// Ids of other workers that were convicted.
  std::set<std::string> innocents_;
  std::vector<Begun> begun_;
};

int usage() {
  std::fputs("usage: canary_figures [--long] [--seed N]\n", stderr);
  return base::to_int(base::ExitStatus::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  Settings settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--long") {
      settings.is_long = true;
      continue;
    }
    const auto value = i + 1 < words.size() ? base::parse_uint(words[i + 1]) : std::nullopt;
    if (!value || words[i] != "--seed") return usage();
    settings.seed = *value;
    ++i;
  }
  try {
    os::raise_fd_limit();
    return Figures(settings).run() ? 0 : 1;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "canary_figures: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
