// The pipeline of fault tolerance as processes: sixteen workers behind fo-route, watched by
// fo-canary, one of which each crashes, reports a CUDA error, is silently wrong, is slow, and loses
// nine tenths of its link. Prints when each was detected, out of service, and back, beside the
// times that NVIDIA Dynamo's plan for fault tolerance has.
//
//   canary_pipeline [--long] [--targets FILE]
//
// --long: questions every 30 s, as that plan has them, in place of every 2 s. --targets: writes the
// addresses of all metrics, for a file_sd_config of Prometheus, and replaces a convicted worker
// after 5 s, so that its samples show it. The engines are fo-oracle; their drivers' messages are
// lines of a file. More routers, without load, show how soon a verdict is everywhere. Exit status
// 0: each fault was detected; the workers of the first three faults were convicted, and no others;
// and all answers were right except those of the wrong worker before it was out, and those that
// ended with an error when their worker was convicted.
#include <array>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "canary/pipeline/fleet.h"
#include "loop/spawn.h"
#include "route/torture/client.h"
#include "route/torture/processes.h"
#include "route/torture/transcript.h"
#include "support/ports.h"

namespace {

using namespace fo;
using namespace fo::pipeline;
using base::Deadline;
using nlohmann::json;
using std::chrono::milliseconds;
using torture::Transcript;

constexpr std::size_t kWorkers = 16;
constexpr std::size_t kRouters = 3;
constexpr std::size_t kClients = 24;
constexpr std::size_t kQuestions = 24;
constexpr std::size_t kCanaries = 32;
constexpr char kUsualGap[] = "15ms";
// Time between tokens of a throttled GPU, and of a link with a tenth of its bandwidth.
constexpr char kSlowGap[] = "150ms";
// The workers that become slow, one by its GPU and one by its link. They send several tokens at a
// time, but fewer than the shortest answer has, so that a busy machine, which wakes them late each
// time, does not hide a factor of ten.
constexpr std::size_t kThrottled = 11;
constexpr std::size_t kLink = 14;
constexpr std::size_t kSlowChunk = 6;

/// The events of a worker, with their times.
struct Story {
  std::string name;
  std::size_t worker = 0;
  std::string id;
  /// The worker's share of requests is to become this; 0 by a conviction.
  double weight = 0;
  Clock::time_point begin = {};
  std::optional<Clock::time_point> detected = {};
  std::string detected_by = {};
  /// Reason that the canary gave.
  std::string reason = {};
  std::optional<Clock::time_point> out = {};
  /// When the fault was repaired.
  std::optional<Clock::time_point> repaired = {};
  std::optional<Clock::time_point> back = {};
  std::size_t resumed = 0;
  double longest_gap_ms = 0;
  /// The times of the plan, and why ours differ.
  std::string seed_detected;
  std::string seed_total;
  std::string difference;
};

struct Conviction {
  /// When the canary decided it.
  std::optional<Clock::time_point> decided = {};
  /// When the router with the load was first seen to obey it.
  std::optional<Clock::time_point> obeyed = {};
  std::string reason = {};
};

class Pipeline {
 public:
  Pipeline(bool is_long, std::string targets)
      : fleet_(make_folder()), is_long_(is_long), targets_(std::move(targets)) {}

  bool run() {
    std::printf("folder %s\n", fleet_.folder().c_str());
    std::fflush(stdout);
    begin(play());
    loop_.restart();
    while (running_ > 0) loop_.run_one();
    if (!is_good_) return false;
    report();
    fleet_.stop();
    routers_.clear();
    remove_folder(fleet_.folder());
    return true;
  }

 private:
  void wrong(const std::string& what) {
    std::printf("wrong: %s\n", what.c_str());
    std::fflush(stdout);
    is_good_ = false;
    is_stopping_ = true;
  }

  void begin(awaitable<void> part) {
    ++running_;
    loop::spawn(loop_, std::move(part), [this](const std::exception_ptr& error) {
      --running_;
      if (!error) return;
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& failure) {
        wrong(failure.what());
      }
    });
  }

  // --- Processes.

  awaitable<void> start() {
    for (std::size_t i = 0; i < kWorkers; ++i) {
      std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-oracle", "--gap", kUsualGap};
      engines_.push_back(std::make_unique<torture::Engine>(
          loop_.get_executor(), std::move(argv), [](torture::Engine&, const std::string&) {}));
    }
    for (const auto& engine : engines_) co_await until_served(*engine);
    // For less time; the canary compares times only with those of the same worker.
    const json quick{{"gap", "1ms"}};
    const json usual{{"gap", kUsualGap}};
    for (std::size_t i = 0; i < 2; ++i) co_await set(*engines_[i], quick);
    co_await fleet_.learn(engines_[0]->url(), engines_[1]->url(), kCanaries);
    co_await prepare_questions();
    for (std::size_t i = 0; i < 2; ++i) co_await set(*engines_[i], usual);
    const json chunks{{"chunk", kSlowChunk}};
    for (const std::size_t i : {kThrottled, kLink}) co_await set(*engines_[i], chunks);
    for (std::size_t i = 0; i < kWorkers; ++i) {
      const std::string url = engines_[i]->url();
      const std::string host = host_of(i);
      std::string id = co_await fleet_.add(url, host);
      ids_.push_back(std::move(id));
    }
    json targets = json::array();
    for (std::size_t i = 0; i < kRouters; ++i) targets.push_back(start_router(i));
    std::vector<std::string> canary{"--interval", is_long_ ? "30s" : "2s"};
    for (std::size_t i = 0; i < kWorkers; ++i) {
      std::ofstream(kernel_log(i)).close();
      canary.insert(canary.end(), {"--xid", host_of(i) + "=" + kernel_log(i)});
    }
    fleet_.watch(std::move(canary));
    loop::spawn(loop_, fleet_.follow_verdicts([this](const fleet::Verdict& verdict) {
      if (!verdict.is_conviction()) return;
      const auto age = std::chrono::system_clock::now() - verdict.since;
      Conviction& conviction = convictions_[verdict.id];
      if (!conviction.decided) conviction.decided = Clock::now() - age;
      conviction.reason = verdict.reason;
    }));
    if (targets_.empty()) co_return;
    targets.push_back("127.0.0.1:" + fleet_.canary().ready());
    const json groups = json::array({{{"targets", targets}}});
    os::write_file_atomic(targets_, groups.dump(), 0644);
  }
  // The first one has the load. Returns the address of its metrics.
  std::string start_router(std::size_t number) {
    std::string metrics = "127.0.0.1:" + std::to_string(metrics_ports_.at(number).number());
    // Nothing that a busy machine prolongs is limited.
    const std::vector<std::string> route{
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--registry",
        fleet_.registry(),
        "--admin",
        fleet_.folder() + "/" + router_name(number) + "/admin.sock",
        "--choice",
        "round-robin",
        "--slo-rate",
        "1",
        "--resume-wait",
        "1h",
        "--queue-timeout",
        "1h",
        "--lame-duck",
        "0s",
        "--metrics",
        metrics};
    routers_.emplace_back(fleet_.folder(), "route", route, true);
    return metrics;
  }
  static std::string router_name(std::size_t number) { return "route-" + std::to_string(number); }
  static std::string host_of(std::size_t worker) { return "host-" + std::to_string(worker); }
  [[nodiscard]] std::string kernel_log(std::size_t worker) const {
    return fleet_.folder() + "/" + host_of(worker) + ".log";
  }
  void log_xid(std::size_t worker, const std::string& code_and_text) {
    std::ofstream(kernel_log(worker), std::ios::app)
        << "NVRM: Xid (PCI:" << kGpu << "): " << code_and_text << "\n";
  }

  static awaitable<void> until_served(torture::Engine& engine) {
    const Deadline deadline = long_after();
    for (;;) {
      try {
        static_cast<void>(co_await Fleet::get(engine.url("/health")));
        co_return;
      } catch (const base::Error&) {
        if (deadline.expired()) throw;
      }
      co_await loop::pause_for(milliseconds(5));
    }
  }

  static awaitable<std::string> post(std::string url, json body) {
    http::FetchOptions options;
    options.body = body.dump();
    http::Response answer = co_await http::async_fetch("POST", url, test::soon(), options);
    if (answer.status != 200) fail("post to " + url + ": " + answer.body);
    co_return std::move(answer.body);
  }
  static awaitable<void> set(torture::Engine& engine, json knobs) {
    const std::string url = engine.url("/oracle");
    static_cast<void>(co_await post(url, std::move(knobs)));
  }

  // --- Clients.

  struct Question {
    json body;
    Transcript expected;
  };
  struct WrongAnswer {
    Clock::time_point begin;
    Clock::time_point end;
    std::string difference;
  };

  awaitable<void> prepare_questions() {
    for (std::size_t i = 0; i < kQuestions; ++i) {
      json body{{"model", "oracle"},
                {"prompt", "Question " + std::to_string(i)},
                {"max_tokens", 40 + i},
                {"stream", true}};
      const std::string url = engines_[0]->url("/v1/completions");
      const std::string answer = co_await post(url, body);
      questions_.push_back({std::move(body), torture::read_stream(answer)});
    }
  }

  awaitable<void> ask_on(std::size_t client) {
    std::unique_ptr<http::Connection> connection;
    for (std::size_t i = client; has_load_ && !is_stopping_; i += kClients + 1) {
      const Question& question = questions_[i % kQuestions];
      const Clock::time_point begin = Clock::now();
      ++asking_;
      std::string answer;
      try {
        answer = co_await ask(connection, question.body.dump());
      } catch (const base::Error& error) {
        answer = error.what();
        connection.reset();
      }
      --asking_;
      ++answers_;
      // What a convicted worker has delivered is not continued.
      if (answer.find("its answers were found to be wrong") != answer.npos) {
        ended_answers_.emplace_back(begin, Clock::now());
        continue;
      }
      const std::string difference =
          torture::difference(question.expected, torture::read_stream(answer));
      if (difference.empty()) continue;
      wrong_answers_.push_back({begin, Clock::now(), difference + answer.substr(0, 300)});
    }
  }

  awaitable<std::string> ask(std::unique_ptr<http::Connection>& connection, std::string body) {
    http::Origin origin =
        http::make_origin(net::parse_url("http://" + routers_.front().ready()), {});
    torture::Received received;
    const torture::OnResumed on_resumed = [&](Clock::time_point from, Clock::time_point to) {
      if (current_ == nullptr) return;
      ++current_->resumed;
      current_->longest_gap_ms = std::max(current_->longest_gap_ms, milliseconds_between(from, to));
    };
    co_await torture::ask(connection, std::move(origin), "/v1/completions", std::move(body),
                          long_after(), received, on_resumed);
    std::string answer;
    if (received.head.status != 200) {
      answer = "status " + std::to_string(received.head.status) + ": ";
    }
    answer += received.body;
    co_return answer;
  }

  // --- What the router, the canary and the driver's log say.

  static void detect(Story& story, const char* by) {
    if (story.detected) return;
    story.detected = Clock::now();
    story.detected_by = by;
  }

  awaitable<void> observe() {
    for (std::size_t turn = 0; !is_stopping_; ++turn) {
      co_await loop::pause_for(milliseconds(5));
      const json route = co_await fleet_.page(router_name(0));
      for (const json& worker : route.at("workers")) on_router(worker);
      in_.clear();
      busy_.clear();
      for (const json& worker : route.at("workers")) {
        const bool is_in = worker.at("weight") == 1 && worker.at("reachable") == true;
        if (is_in) in_.insert(worker.at("id").get<std::string>());
        if (worker.at("requests") > 0) busy_.insert(worker.at("id").get<std::string>());
        if (worker.at("verdict") != "convicted") continue;
        Conviction& conviction = convictions_[worker.at("id").get<std::string>()];
        if (!conviction.obeyed) conviction.obeyed = Clock::now();
      }
      if (turn % 4 != 0) continue;
      const json canary = co_await fleet_.page("canary");
      for (const json& worker : canary.at("workers")) {
        for (Story* const story : open_stories(worker)) {
          if (worker.at("health") == "healthy") continue;
          detect(*story, "canary");
          story->reason = worker.at("reason").get<std::string>();
        }
      }
      is_learnt_ = std::ranges::all_of(canary.at("workers"), [](const json& worker) {
        return worker.at("baseline").at("answer").at("count") >= 3;
      });
    }
  }
  std::vector<Story*> open_stories(const json& worker) {
    std::vector<Story*> open;
    for (Story& story : stories_) {
      if (!story.back && story.id == worker.at("id")) open.push_back(&story);
    }
    return open;
  }
  void on_router(const json& worker) {
    for (Story* const story : open_stories(worker)) {
      const bool is_reachable = worker.at("reachable").get<bool>();
      const double weight = is_reachable ? worker.at("weight").get<double>() : 0;
      if (worker.at("health") != "healthy" || !is_reachable) detect(*story, "router");
      if (!story->out && weight <= story->weight) story->out = Clock::now();
      if (story->repaired && (story->weight > 0 ? weight >= 1 : weight > 0)) {
        story->back = Clock::now();
      }
    }
  }

  // Until the router gives the worker no new requests, which is noted.
  awaitable<void> await_obedience(std::size_t router, std::string id) {
    const Deadline deadline = long_after();
    for (;;) {
      const json page = co_await fleet_.page(router_name(router));
      const bool is_out = std::ranges::any_of(page.at("workers"), [&](const json& worker) {
        return worker.at("id") == id && worker.at("weight") == 0;
      });
      if (is_out) break;
      if (deadline.expired()) fail("router " + std::to_string(router) + " obeys no verdict");
      co_await loop::pause_for(milliseconds(5));
    }
    obeyed_.push_back(Clock::now());
  }

  // --- The faults.

  awaitable<void> await(std::string what, std::function<bool()> is_true) {
    const Deadline deadline = long_after();
    while (!is_true()) {
      if (is_stopping_) fail("stopped before: " + what);
      if (deadline.expired()) fail("waited in vain until " + what);
      co_await loop::pause_for(milliseconds(2));
    }
  }

  // From now on the worker has the fault.
  Story& tell(std::string name, std::size_t worker, double weight) {
    Story& story = stories_.emplace_back();
    story.name = std::move(name);
    story.worker = worker;
    story.id = ids_[worker];
    story.weight = weight;
    story.begin = Clock::now();
    if (weight == 0) to_be_convicted_.insert(story.id);
    return story;
  }
  // Begins the story of a fault that ends streams, which the router then resumes.
  Story& tell_death(std::string name, std::size_t worker) {
    Story& story = tell(std::move(name), worker, 0);
    current_ = &story;
    story.seed_detected = "0-1 ms";
    story.seed_total = "3-11 ms";
    return story;
  }
  // Until a request that begins from now on runs on the worker.
  awaitable<void> await_busy(std::size_t worker) {
    co_await await("a worker is idle", [=, this] { return !busy_.contains(ids_[worker]); });
    co_await await("a worker is busy", [=, this] { return busy_.contains(ids_[worker]); });
  }
  awaitable<void> until_out(const Story& story) {
    return await("the worker with the fault '" + story.name + "' is out",
                 [&story] { return story.detected && story.out; });
  }
  // Until the canary has convicted the worker, and the router with the load obeys.
  awaitable<void> until_convicted(const Story& story) {
    return await("the worker with the fault '" + story.name + "' is convicted", [&story, this] {
      const auto found = convictions_.find(story.id);
      return found != convictions_.end() && found->second.decided && found->second.obeyed;
    });
  }
  awaitable<void> until_back(const Story& story) {
    return await("the worker is back after the fault '" + story.name + "'",
                 [&story] { return story.back.has_value(); });
  }

  awaitable<void> play() {
    co_await start();
    begin(observe());
    co_await await("all workers are known",
                   [this] { return in_.size() == kWorkers && is_learnt_; });
    for (std::size_t i = 0; i < kClients; ++i) begin(ask_on(i));
    co_await await("clients are answered", [this] { return answers_ >= kClients; });
    co_await crash();
    co_await cuda_error();
    co_await silent_corruption();
    for (const Story& story : stories_) co_await until_back(story);
    // A canary judges the speed of an idle worker only.
    has_load_ = false;
    co_await await("the clients have ended", [this] { return asking_ == 0; });
    co_await slowness();
    for (const Story& story : stories_) co_await until_back(story);
    check();
    is_stopping_ = true;
  }

  awaitable<void> crash() {
    constexpr std::size_t kWorker = 2;
    torture::Engine& engine = *engines_[kWorker];
    co_await await_busy(kWorker);
    Story& story = tell_death("crash", kWorker);
    story.difference = "streams go on as soon as their connections end";
    engine.signal(SIGKILL);
    co_await until_out(story);
    // Not before, because a conviction would end the streams that go on elsewhere.
    log_xid(kWorker, "79, pid=1234, GPU has fallen off the bus.");
    co_await until_convicted(story);
    const Deadline deadline = long_after();
    co_await engine.until_ended(deadline);
    engine.start();
    co_await until_served(engine);
    co_await replace(story);
  }

  awaitable<void> cuda_error() {
    constexpr std::size_t kWorker = 5;
    // Streams that begin now meet the error later.
    const json broken{{"fail", "error@30"}};
    const json sound{{"fail", "none"}};
    co_await set(*engines_[kWorker], broken);
    co_await await_busy(kWorker);
    Story& story = tell_death("CUDA error", kWorker);
    story.difference = "streams go on when the engine reports the error to them";
    log_xid(kWorker, "48, pid=1234, name=vllm, DBE (Double Bit Error) ECC Error");
    co_await until_out(story);
    co_await until_convicted(story);
    co_await set(*engines_[kWorker], sound);
    co_await replace(story);
  }

  awaitable<void> silent_corruption() {
    constexpr std::size_t kWorker = 8;
    Story& story = tell("silent corruption", kWorker, 0);
    current_ = &story;
    story.seed_detected = story.seed_total = "0-30 s";
    story.difference = is_long_ ? "the repetition and the vote add to the interval"
                                : "the interval is 2 s, not 30 s";
    const json broken{{"fail", "wrong@4"}};
    const json sound{{"fail", "none"}};
    const std::string id = story.id;
    for (std::size_t i = 0; i < kRouters; ++i) begin(await_obedience(i, id));
    co_await set(*engines_[kWorker], broken);
    co_await until_out(story);
    co_await until_convicted(story);
    co_await await("the conviction is everywhere", [this] { return obeyed_.size() == kRouters; });
    for (const Clock::time_point at : obeyed_) {
      delays_of_verdict_.push_back(milliseconds_between(*convictions_.at(id).decided, at));
    }
    corrupt_ = {story.begin, *story.out};
    co_await set(*engines_[kWorker], sound);
    co_await replace(story);
  }

  // The repaired worker has a new id: a conviction stays with the old one.
  awaitable<void> replace(Story& story) {
    if (!targets_.empty()) co_await loop::pause_for(std::chrono::seconds(5));
    const std::string old = story.id;
    co_await fleet_.remove(old);
    const std::string url = engines_[story.worker]->url();
    const std::string host = host_of(story.worker);
    story.id = co_await fleet_.add(url, host);
    ids_[story.worker] = story.id;
    story.repaired = Clock::now();
    co_await until_back(story);
  }

  awaitable<void> slowness() {
    current_ = nullptr;
    co_await await("the next workers are in",
                   [this] { return in_.contains(ids_[kThrottled]) && in_.contains(ids_[kLink]); });
    Story& slow = tell("slowness", kThrottled, 0.5);
    slow.seed_detected = slow.seed_total = "30-60 s";
    slow.difference =
        "three idle checks in a row must be over 3 times the usual; it keeps half of its weight";
    const json throttled{{"gap", kSlowGap}};
    co_await set(*engines_[kThrottled], throttled);
    Story& link = tell("link at a tenth", kLink, 0.5);
    link.seed_detected = link.seed_total = "1-5 s";
    link.difference =
        "no collective call times out: the driver's log and slow checks tell it together";
    const json narrow{{"gap", kSlowGap}};
    log_xid(kLink, "145, NVLINK: RLW_CTRL Nonfatal XC0 i0 Link 06 (0x021425c6 0x00000000)");
    co_await set(*engines_[kLink], narrow);
    co_await until_out(slow);
    co_await until_out(link);
    const json usual{{"gap", kUsualGap}};
    co_await set(*engines_[kThrottled], usual);
    co_await set(*engines_[kLink], usual);
    slow.repaired = link.repaired = Clock::now();
  }

  // --- The end.

  // Whether the time overlaps that in which the router may have learned of a conviction.
  [[nodiscard]] bool is_in_conviction(Clock::time_point begin, Clock::time_point end) const {
    return std::ranges::any_of(convictions_, [&](const auto& entry) {
      const Conviction& conviction = entry.second;
      return conviction.decided && conviction.obeyed && end >= *conviction.decided &&
             begin <= *conviction.obeyed;
    });
  }

  void check() {
    for (const auto& [id, conviction] : convictions_) {
      if (to_be_convicted_.contains(id)) continue;
      wrong("worker " + id + ", which had no fault that convicts, was convicted: '" +
            conviction.reason + "'");
    }
    for (const auto& [begin, end] : ended_answers_) {
      if (!is_in_conviction(begin, end)) wrong("an answer was ended without a conviction");
    }
    for (const WrongAnswer& answer : wrong_answers_) {
      if (answer.end >= corrupt_.first && answer.begin <= corrupt_.second) continue;
      wrong("an answer that no corrupt worker gave:\n" + answer.difference);
    }
    if (stories_[0].resumed + stories_[1].resumed == 0) wrong("no stream was resumed");
  }

  void report() {
    std::printf(
        "%zu answers, %zu of them wrong, by the corrupt worker before it was out, and %zu ended "
        "with an error, because their workers were convicted\n",
        answers_, wrong_answers_.size(), ended_answers_.size());
    std::printf("%-18s %-18s %-9s %-10s %-9s %-8s %-9s %s\n", "fault", "detected", "the plan's",
                "out", "the plan's", "resumed", "pause", "back after the repair");
    for (const Story& story : stories_) {
      char detected[32];
      std::snprintf(detected, sizeof detected, "%.0f ms, %s",
                    milliseconds_between(story.begin, *story.detected), story.detected_by.c_str());
      std::printf("%-18s %-18s %-9s %6.0f ms  %-9s %8zu %6.0f ms %6.1f s\n", story.name.c_str(),
                  detected, story.seed_detected.c_str(),
                  milliseconds_between(story.begin, *story.out), story.seed_total.c_str(),
                  story.resumed, story.longest_gap_ms,
                  milliseconds_between(*story.repaired, *story.back) / 1000);
    }
    for (const Story& story : stories_) {
      const std::string reason = story.reason.empty() ? "" : story.reason + "; ";
      std::printf("%s: %s%s.\n", story.name.c_str(), reason.c_str(), story.difference.c_str());
    }
    std::printf("The conviction for silent corruption reached %zu routers after:", kRouters);
    for (const double delay : delays_of_verdict_) std::printf(" %.0f ms", delay);
    std::puts("");
    std::puts("The plan's worker is back after 61 s, which are the breaker's 60 s and a check.");
  }

  /// Before the loop, whose coroutines use it to its end.
  Fleet fleet_;
  boost::asio::io_context loop_{1};
  const bool is_long_;
  /// The file for the addresses of the metrics; empty without --targets.
  const std::string targets_;
  std::size_t running_ = 0;
  bool is_good_ = true;
  bool is_stopping_ = false;
  std::vector<std::unique_ptr<torture::Engine>> engines_;
  std::vector<std::string> ids_;
  std::array<test::ReservedPort, kRouters> metrics_ports_;
  std::deque<Program> routers_;
  std::vector<Question> questions_;
  std::vector<WrongAnswer> wrong_answers_;
  bool has_load_ = true;
  std::size_t asking_ = 0;
  std::size_t answers_ = 0;
  /// The begin and the end of each answer that ended with the error of a conviction.
  std::vector<std::pair<Clock::time_point, Clock::time_point>> ended_answers_;
  std::deque<Story> stories_;
  /// To which streams that are resumed belong.
  Story* current_ = nullptr;
  /// By the ids of the workers.
  std::map<std::string, Conviction> convictions_;
  /// Ids of the workers whose faults convict them.
  std::set<std::string> to_be_convicted_;
  /// When each router gave the corrupt worker no more requests.
  std::vector<Clock::time_point> obeyed_;
  /// From the canary's decision until then, in milliseconds.
  std::vector<double> delays_of_verdict_;
  /// When answers may have been wrong.
  std::pair<Clock::time_point, Clock::time_point> corrupt_;
  /// The workers that the router uses with their whole weight.
  std::set<std::string> in_;
  /// Ids of workers that have requests.
  std::set<std::string> busy_;
  /// Whether the canary knows the usual time of each worker.
  bool is_learnt_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  bool is_long = false;
  std::string targets;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--long") {
      is_long = true;
    } else if (words[i] == "--targets" && i + 1 < words.size()) {
      targets = words[++i];
    } else {
      std::fputs("usage: canary_pipeline [--long] [--targets FILE]\n", stderr);
      return base::to_int(base::ExitStatus::kUsage);
    }
  }
  try {
    return Pipeline(is_long, targets).run() ? 0 : 1;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "canary_pipeline: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
