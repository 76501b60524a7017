// Streams that survive: clients of a router read answers of engines that are killed, stall,
// reset their connections, end within an event, between two events or without a finish, and send
// errors. Each answer must be the one that an undisturbed engine gives: no token is lost or comes
// twice.
//
//   route_torture [--engine oracle|refengine|pairs|pair] [--long | --faults N] [--seed N]
//
// --long: ten times as many faults. SIGINT and SIGTERM end a run early, with its report. Exit
// status 0: no errors. The engines are fo-oracle. Half of them send one token in an event, the
// others up to five, and their requests have neither stop strings nor log-probabilities: the router
// knows the text of an event, not that of each token in it.
//
// --engine refengine: four processes of fo-refengine with the same weights are killed and started
// again, or stopped for longer than the router waits for a token. After a resume, the router draws
// the tokens of a seeded request with another seed, so that these requests leave one token to draw.
//
// --engine pairs: three pairs of fo-refengine under fo-shadow. The active engine or its fo-shadow
// is killed, and comes back as the standby; the engine is stopped; the connection between the two
// is reset, or ends within an event. Streams go on at another pair. --engine pair: only one pair,
// so that streams go on when its standby serves, or at the same engine after a broken connection.
//
// The router's memory must not grow with the number of faults and answers: at the end, it may be
// half as large again, and 16 MiB more, as after a fifth of the faults.
//
// No legal refusal is possible, so that each error counts: a request meets at most one death of an
// engine, or fault before the first tokens, since the next one waits until all requests have ended
// that were in flight at the last one. All other faults come after tokens.
#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "bench/usage.h"
#include "http/client.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "route/torture/client.h"
#include "route/torture/pair.h"
#include "route/torture/processes.h"
#include "route/torture/questions.h"
#include "route/torture/refengines.h"
#include "route/torture/relay.h"
#include "route/torture/transcript.h"
#include "support/sanitizers.h"
#include "support/soon.h"

namespace {

using namespace fo;
using base::Deadline;
using boost::asio::awaitable;
using nlohmann::json;
using std::chrono::milliseconds;
using torture::Engine;
using torture::kModels;
using torture::Pair;
using torture::pick;
using torture::Question;
using torture::Random;
using torture::Relay;
using torture::Transcript;
using Clock = Deadline::Clock;

constexpr std::size_t kClients = 64;
// With pairs, a fault waits until each request in flight has had its turn in an engine.
constexpr std::size_t kClientsOfPairs = 12;
constexpr std::size_t kEnginesOfModel = 4;
constexpr std::size_t kManyPairs = 3;
constexpr std::size_t kQuestions = 64;
// A fault before this many tokens may be one before the client has received anything.
constexpr std::uint64_t kEarlyTokens = 8;
constexpr std::uint64_t kMaxPlace = 40;
// The router is warm after the faults divided by this.
constexpr std::uint64_t kWarmUp = 5;
// An answer that takes longer never ends.
constexpr auto kPatience = std::chrono::minutes(10);

enum class Kind { kOracle, kRefengine, kPairs, kLonePair };
const std::map<std::string, Kind> kEngineNames{{"oracle", Kind::kOracle},
                                               {"refengine", Kind::kRefengine},
                                               {"pairs", Kind::kPairs},
                                               {"pair", Kind::kLonePair}};
// The faults of a short run.
const std::map<Kind, std::uint64_t> kFaults{
    {Kind::kOracle, 100}, {Kind::kRefengine, 12}, {Kind::kPairs, 16}, {Kind::kLonePair, 5}};

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// --- The torture.

class Torture {
 public:
  Torture(std::string folder, Kind kind, std::uint64_t seed, std::uint64_t faults)
      : folder_(std::move(folder)), random_(seed), faults_(faults) {
    if (kind != Kind::kOracle) refengines_.emplace(folder_);
    if (kind == Kind::kPairs || kind == Kind::kLonePair) {
      for (std::size_t i = 0; i < (kind == Kind::kLonePair ? 1 : kManyPairs); ++i) start_pair(i);
    } else {
      const std::size_t count = kEnginesOfModel * (refengines_ ? 1 : kModels.size());
      for (std::size_t i = 0; i < count; ++i) {
        start_engine(refengines_ ? refengines_->argv() : oracle_argv(i));
      }
    }
    std::vector<std::string> workers;
    for (const auto& engine : engines_) workers.push_back(engine->url());
    for (const auto& pair : pairs_) workers.push_back(pair->url());
    workers_ = workers.size();
    for (std::size_t i = 0; i < workers_; ++i) workers[i].insert(0, "e" + std::to_string(i) + "=");
    router_.emplace(workers, folder_);
  }

  /// Returns false, and prints the errors, if there are any.
  bool run() {
    const auto on_end = [this](const std::exception_ptr& error) {
      --running_;
      if (!error) return;
      try {
        std::rethrow_exception(error);
      } catch (const std::exception& failure) {
        wrong(failure.what());
      }
    };
    boost::asio::signal_set signals(loop_, SIGINT, SIGTERM);
    signals.async_wait([this](const boost::system::error_code&, int) { is_stopping_ = true; });
    const auto begin = [&](awaitable<void> part) {
      ++running_;
      loop::spawn(loop_, std::move(part), on_end);
    };
    begin(prepare());
    run_parts();
    if (!is_good_) return false;
    clients_.resize(pairs_.empty() ? kClients : kClientsOfPairs);
    for (Client& client : clients_) begin(ask_on(client));
    if (pairs_.empty()) {
      begin(refengines_ ? stop_engines() : fail_late());
      begin(fail_hard());
    } else {
      begin(fail_pairs());
    }
    run_parts();
    begin(check_end());
    run_parts();
    report();
    return is_good_;
  }

 private:
  struct Client {
    bool is_busy = false;
    /// The hard faults before its request.
    std::uint64_t born = 0;
  };
  struct Event {
    Clock::time_point time;
    std::string what;
  };
  struct Answer {
    int status = 0;
    std::string id;
    std::string body;
    bool is_whole = false;
  };
  struct Gap {
    std::string id;
    Clock::time_point from;
    Clock::time_point to;
  };

  void wrong(const std::string& what) {
    std::printf("wrong: %s\n", what.c_str());
    std::fflush(stdout);
    is_good_ = false;
    is_stopping_ = true;
  }

  void run_parts() {
    loop_.restart();
    while (running_ > 0) loop_.run_one();
  }

  std::vector<std::string> oracle_argv(std::size_t number) {
    const bool is_first = number < kEnginesOfModel;
    std::vector<std::string> argv{FO_BUILD_DIR "/bin/fo-oracle",
                                  "-v",
                                  "--log-format",
                                  "text",
                                  "--model",
                                  kModels[is_first ? 0 : 1],
                                  "--max-model-len",
                                  "160",
                                  "--gap",
                                  "8ms",
                                  "--jitter",
                                  "4ms",
                                  "--seed",
                                  std::to_string(random_())};
    if (!is_first) {
      argv.insert(argv.end(), {"--chunk", "5", "--random-chunks", "--half-characters"});
    }
    if (number % 2 == 1) argv.insert(argv.end(), {"--write-bytes", "100"});
    return argv;
  }

  void start_engine(std::vector<std::string> argv) {
    engines_.push_back(std::make_unique<Engine>(
        loop_.get_executor(), std::move(argv),
        [this](Engine& engine, const std::string& line) { on_line(engine, line); }));
  }

  void start_pair(std::size_t number) {
    pairs_.push_back(std::make_unique<Pair>(loop_.get_executor(), folder_,
                                            "pair" + std::to_string(number), refengines_->argv(),
                                            torture::Refengines::kKvSize));
  }

  // --- Faults.

  // A line of an engine: "fo-oracle: debug: request 'ID': fails: half@12".
  void on_line(Engine& engine, const std::string& line) {
    constexpr std::string_view kMark = "': fails: ";
    const std::size_t mark = line.find(kMark);
    const std::size_t begin = line.find('\'');
    if (mark == line.npos || begin >= mark) return;
    const std::string id = line.substr(begin + 1, mark - begin - 1);
    const std::string fault = line.substr(mark + kMark.size());
    const std::size_t at = fault.find('@');
    const auto place = base::parse_uint(std::string_view(fault).substr(at + 1));
    const std::string kind = fault.substr(0, at);
    const bool is_death = kind == "kill" || kind == "exit";
    if (is_death) deaths_.push_back({Clock::now(), kind});
    if (place.value_or(0) < kEarlyTokens || is_death) {
      ++hard_;
      engine.is_armed = false;
    }
    of_request_[id].push_back({Clock::now(), fault});
    count_fault(kind);
  }

  void count_fault(const std::string& kind) {
    ++counts_[kind];
    if (++fired_ == std::max<std::uint64_t>(faults_ / kWarmUp, 1)) warm_mib_ = router_mib();
    if (fired_ >= faults_) is_stopping_ = true;
  }

  awaitable<bool> set_fault(Engine& engine, std::string fault) {
    http::FetchOptions options;
    options.body = json{{"fail", fault}, {"fail_next", fault == "none" ? 0 : 1}}.dump();
    std::string url = engine.url("/oracle");
    try {
      const http::Response answer = co_await http::async_fetch("POST", url, test::soon(), options);
      co_return answer.status == 200;
    } catch (const base::Error&) {
      co_return false;
    }
  }

  // Faults after tokens, of which a request may have any number.
  awaitable<void> fail_late() {
    // A stall takes long, so it is rarer than the others.
    constexpr std::array kKinds{"stall", "reset", "reset", "cut",   "cut",   "half", "half",
                                "end",   "end",   "error", "error", "abort", "abort"};
    while (!is_stopping_) {
      co_await loop::pause_for(milliseconds(pick(random_, 0, 150)));
      Engine& engine = *engines_[pick(random_, 0, engines_.size() - 1)];
      if (!engine.runs() || engine.is_armed) continue;
      const std::uint64_t place = pick(random_, kEarlyTokens, kMaxPlace);
      std::string fault = kKinds[pick(random_, 0, kKinds.size() - 1)];
      fault += "@" + std::to_string(place);
      static_cast<void>(co_await set_fault(engine, std::move(fault)));
    }
  }

  // Engines that are stopped for longer than the router waits for a token.
  awaitable<void> stop_engines() {
    while (!is_stopping_) {
      co_await loop::pause_for(milliseconds(pick(random_, 0, 1000)));
      Engine& engine = *engines_[pick(random_, 0, engines_.size() - 1)];
      if (!engine.runs()) continue;
      engine.signal(SIGSTOP);
      co_await while_stopped();
      // It may have been killed meanwhile, and started again.
      if (engine.runs()) engine.signal(SIGCONT);
    }
  }
  awaitable<void> while_stopped() {
    deaths_.push_back({Clock::now(), "SIGSTOP"});
    co_await loop::pause_for(milliseconds(pick(random_, 2500, 3500)));
    count_fault("SIGSTOP");
  }

  // Faults of pairs, one after the other; half of them are deaths.
  awaitable<void> fail_pairs() {
    const bool is_lone = pairs_.size() == 1;
    std::uint64_t kind = pick(random_, 0, 9);
    std::map<const Pair*, Deadline> whole_by;
    for (const auto& pair : pairs_) whole_by.emplace(pair.get(), test::soon());
    while (!is_stopping_) {
      co_await loop::pause_for(milliseconds(pick(random_, 1, 20)));
      check_pairs(whole_by);
      if (is_stopping_) co_return;
      Pair& pair = *pairs_[pick(random_, 0, pairs_.size() - 1)];
      const bool is_death = kind >= 5;
      if (!pair.is_whole() || (is_death && !is_renewed())) continue;
      Pair::Member& active = *pair.active();
      if (kind == 0 && !is_lone) {
        active.signal_engine(SIGSTOP);
        co_await while_stopped();
        active.signal_engine(SIGCONT);
      } else if (is_death) {
        co_await kill(active);
        whole_by.at(&pair) = test::soon();
      } else {
        co_await break_connection(active.relay());
      }
      kind = pick(random_, 0, 9);
    }
  }

  // No fo-shadow ends unless it or its engine is killed; then its pair is soon whole again. A pair
  // that is whole gets a new deadline in `whole_by`.
  void check_pairs(std::map<const Pair*, Deadline>& whole_by) {
    for (const auto& pair : pairs_) {
      for (const auto& member : pair->members()) {
        if (member->shadow().runs()) continue;
        wrong("fo-shadow of " + pair->url() + " ended with status " +
              std::to_string(member->shadow().status()) + ": see " + member->log());
      }
      if (pair->is_whole()) {
        whole_by.at(pair.get()) = test::soon();
      } else if (whole_by.at(pair.get()).expired()) {
        wrong("the pair at " + pair->url() + " lacks an active engine or a standby: see " +
              pair->members()[0]->log() + " and " + pair->members()[1]->log());
      }
    }
  }

  // Breaks the connection between fo-shadow and its engine in the middle of an answer, if there is
  // one soon.
  awaitable<void> break_connection(Relay& relay) {
    const bool is_reset = pick(random_, 0, 1) == 0;
    const std::uint64_t place = pick(random_, kEarlyTokens, kMaxPlace);
    relay.fail_next(is_reset ? Relay::Fault::kReset : Relay::Fault::kCut, place, [this, is_reset] {
      deaths_.push_back({Clock::now(), is_reset ? "reset" : "cut"});
      count_fault(deaths_.back().what);
    });
    const Deadline deadline = Deadline::after(std::chrono::seconds(1));
    while (relay.is_armed() && !deadline.expired()) co_await loop::pause_for(milliseconds(2));
    relay.disarm();
  }

  // Kills the engine, or the fo-shadow above it.
  awaitable<void> kill(Pair::Member& active) {
    const bool is_engine = pick(random_, 0, 1) == 0;
    if (is_engine) active.signal_engine(SIGKILL);
    if (!is_engine) active.shadow().signal(SIGKILL);
    deaths_.push_back({Clock::now(), is_engine ? "SIGKILL" : "shadow"});
    co_await active.shadow().until_ended(test::soon());
    ++hard_;
    count_fault(is_engine ? "SIGKILL" : "shadow");
    if (active.shadow().runs()) co_return wrong("fo-shadow did not end");
    co_await loop::pause_for(milliseconds(pick(random_, 0, 300)));
    active.restart();
  }

  // Whether each request in flight began after the last hard fault.
  [[nodiscard]] bool is_renewed() const {
    return std::all_of(clients_.begin(), clients_.end(), [this](const Client& client) {
      return !client.is_busy || client.born == hard_;
    });
  }

  // Deaths of engines, and faults before the client has received anything.
  awaitable<void> fail_hard() {
    constexpr std::array kKinds{"kill", "exit", "reset", "cut", "half", "end", "error", "abort"};
    while (!is_stopping_) {
      co_await loop::pause_for(milliseconds(pick(random_, 1, 20)));
      if (!is_renewed()) continue;
      Engine& engine = *engines_[pick(random_, 0, engines_.size() - 1)];
      if (!engine.runs()) continue;
      if (refengines_ || pick(random_, 0, 3) != 0) {
        engine.signal(SIGKILL);
        deaths_.push_back({Clock::now(), "SIGKILL"});
        co_await engine.until_ended(test::soon());
        ++hard_;
        count_fault("SIGKILL");
      } else {
        engine.is_armed = true;
        std::string fault = kKinds[pick(random_, 0, kKinds.size() - 1)];
        const bool is_death = fault == "kill" || fault == "exit";
        const std::uint64_t place = pick(random_, 0, kEarlyTokens - 1);
        fault += place == 0 && !is_death ? "@start" : "@" + std::to_string(place);
        static_cast<void>(co_await set_fault(engine, std::move(fault)));
        const Deadline deadline = Deadline::after(std::chrono::seconds(1));
        while (engine.is_armed && engine.runs() && !deadline.expired()) {
          co_await loop::pause_for(milliseconds(2));
        }
        if (engine.is_armed) static_cast<void>(co_await set_fault(engine, "none"));
        // It may have failed just before that: then its line is read now.
        co_await loop::pause_for(milliseconds(20));
        engine.is_armed = false;
        if (is_death) co_await engine.until_ended(Deadline::after(milliseconds(100)));
      }
      if (engine.runs()) continue;
      co_await loop::pause_for(milliseconds(pick(random_, 0, 300)));
      engine.start();
    }
  }

  // --- Clients.

  // The answer of a server. With `gaps`, the pauses of a stream before it was resumed.
  awaitable<Answer> ask(std::unique_ptr<http::Connection>& connection, std::uint16_t port,
                        const Question& question, std::vector<Gap>* gaps) {
    const Deadline deadline = Deadline::after(kPatience);
    http::Origin origin;
    origin.address = {"127.0.0.1", port};
    torture::Received received;
    const auto id = [&] {
      return std::string(received.head.header("x-fo-request-id").value_or(""));
    };
    const torture::OnResumed on_resumed = [&](Clock::time_point from, Clock::time_point to) {
      if (gaps != nullptr) gaps->push_back({id(), from, to});
    };
    Answer answer;
    try {
      std::string body = question.body.dump();
      co_await torture::ask(connection, std::move(origin), question.path, std::move(body), deadline,
                            received, on_resumed);
      answer.is_whole = true;
    } catch (const base::Error& error) {
      received.body += std::string("\n(") + error.what() + ")";
      connection.reset();
    }
    answer.status = received.head.status;
    answer.id = id();
    answer.body = std::move(received.body);
    co_return answer;
  }

  static Transcript read(const Question& question, const Answer& answer) {
    Transcript transcript =
        question.is_stream() ? torture::read_stream(answer.body) : torture::read_whole(answer.body);
    if (answer.status != 200) {
      transcript.errors.push_back("status " + std::to_string(answer.status) + ": " + answer.body);
    }
    if (!answer.is_whole) transcript.errors.emplace_back("the answer was cut");
    return transcript;
  }

  // Asks each question of an engine, and waits until the router knows all workers.
  awaitable<void> prepare() {
    while (questions_.size() < kQuestions) {
      Question question =
          refengines_ ? torture::make_refengine_question(random_) : torture::make_question(random_);
      const bool is_first = question.body["model"] != kModels[1];
      const std::string url = pairs_.empty()
                                  ? engines_[is_first ? 0 : kEnginesOfModel]->url(question.path)
                                  : pairs_.front()->url(question.path);
      http::FetchOptions options;
      json body = question.body;
      if (!refengines_) {
        // Halves of characters are not text to a client; the router joins them.
        body["oracle"] = {{"half_characters", false}, {"gap", "0ms"}, {"jitter", "0ms"}};
      }
      options.body = body.dump();
      const http::Response answer = co_await until_answered(url, options);
      const Answer expected{answer.status, "", answer.body, true};
      question.expected = read(question, expected);
      if (!question.expected.errors.empty()) {
        throw base::Error(base::ExitStatus::kSoftware,
                          "ask an engine: " + question.expected.errors.front());
      }
      questions_.push_back(std::move(question));
    }
    const Deadline deadline = test::soon();
    for (double count = 0; count < static_cast<double>(workers_);) {
      if (deadline.expired()) {
        throw base::Error(base::ExitStatus::kSoftware, "start fo-route: it lacks workers");
      }
      co_await loop::pause_for(milliseconds(5));
      count = co_await metric("fo_route_worker_reachable{");
    }
  }

  static awaitable<http::Response> until_answered(std::string url, http::FetchOptions options) {
    const Deadline deadline = test::soon();
    for (;;) {
      try {
        http::Response answer = co_await http::async_fetch("POST", url, deadline, options);
        co_return answer;
      } catch (const base::Error&) {
        if (deadline.expired()) throw;
      }
      co_await loop::pause_for(milliseconds(5));
    }
  }

  awaitable<void> ask_on(Client& client) {
    std::unique_ptr<http::Connection> connection;
    while (!is_stopping_) {
      const Question& question = questions_[pick(random_, 0, questions_.size() - 1)];
      client.is_busy = true;
      client.born = hard_;
      const Answer answer = co_await ask(connection, router_->port(), question, &gaps_);
      client.is_busy = false;
      ++answers_;
      const Transcript transcript = read(question, answer);
      const std::string text = torture::difference(question.expected, transcript);
      if (!text.empty()) explain(question, answer, text);
    }
  }

  // Prints what is wrong with an answer, and which faults it had.
  void explain(const Question& question, const Answer& answer, const std::string& text) {
    std::string all = "request '" + answer.id + "': " + question.path + " " + question.body.dump() +
                      "\n" + text + "  its faults:";
    for (const Event& fault : of_request_[answer.id]) all += " " + fault.what;
    all += "; deaths of engines so far: " + std::to_string(deaths_.size());
    const std::string path = folder_ + "/answer-" + answer.id;
    std::ofstream(path) << answer.body;
    wrong(all + "\n  the answer is in " + path + ", the router's log in " + router_->log());
  }

  // --- The end.

  [[nodiscard]] double router_mib() const { return bench::resident_mib(router_->pid()); }

  // The sum of the router's series whose lines begin with `begin`.
  awaitable<double> metric(std::string begin) {
    const std::string url = router_->metrics_url();
    const http::FetchOptions options;
    const http::Response page = co_await http::async_fetch("GET", url, test::soon(), options);
    double sum = 0;
    std::size_t at = 0;
    while (at < page.body.size()) {
      const std::size_t end = std::min(page.body.find('\n', at), page.body.size());
      const std::string line = page.body.substr(at, end - at);
      if (line.starts_with(begin)) sum += std::strtod(line.c_str() + line.rfind(' '), nullptr);
      at = end + 1;
    }
    co_return sum;
  }

  awaitable<void> check_end() {
    static constexpr std::array kZero{"fo_route_lost_total",
                                      "fo_route_poison_total",
                                      "fo_route_resumes_total{outcome=\"refused\"",
                                      "fo_route_resumes_total{outcome=\"no_worker\"",
                                      "fo_route_worker_requests{",
                                      "fo_route_queue_requests{"};
    for (const char* series : kZero) {
      const double value = co_await metric(series);
      if (value != 0) wrong(std::string(series) + " is " + std::to_string(value) + ", not 0");
    }
    resumed_ = co_await metric("fo_route_resumes_total{outcome=\"resumed\"");
    finished_ = co_await metric("fo_route_resumes_total{outcome=\"finished\"");
    retries_ = co_await metric("fo_route_retries_total{");
    if (resumed_ < 1) wrong("no answer was resumed");
    end_mib_ = router_mib();
    // AddressSanitizer keeps what was freed.
    const bool has_grown = warm_mib_ > 0 && end_mib_ > 1.5 * warm_mib_ + 16;
    if (has_grown && !test::kHasSanitizers) {
      wrong("the router's memory has grown from " + std::to_string(warm_mib_) + " to " +
            std::to_string(end_mib_) + " MiB");
    }
    if (const auto status = router_->stop(); status != 0) {
      wrong("fo-route ended with status " + std::to_string(status.value_or(-1)));
    }
  }

  // What a gap was due to: the request's own last fault, which counts once, or the death of its
  // engine. The client may have read older events after the fault.
  std::string cause_of(const Gap& gap) {
    std::vector<Event>& own = of_request_[gap.id];
    const auto later = std::find_if(own.begin(), own.end(),
                                    [&](const Event& fault) { return fault.time > gap.to; });
    if (later != own.begin()) {
      const std::string fault = std::prev(later)->what;
      own.erase(own.begin(), later);
      return fault.substr(0, fault.find('@'));
    }
    const auto death = std::find_if(deaths_.begin(), deaths_.end(), [&](const Event& one) {
      return one.time >= gap.from - milliseconds(50) && one.time <= gap.to;
    });
    return death != deaths_.end() ? death->what : "another";
  }

  void report() {
    std::printf(
        "%llu faults, %llu answers; %.0f resumes, %.0f ends without a worker, %.0f retries\n",
        static_cast<unsigned long long>(fired_), static_cast<unsigned long long>(answers_),
        resumed_, finished_, retries_);
    std::printf("the router's memory: %.1f MiB after a fifth of the faults, %.1f MiB at the end\n",
                warm_mib_, end_mib_);
    std::map<std::string, std::vector<double>> gaps;
    for (const Gap& gap : gaps_) {
      const std::chrono::duration<double, std::milli> time = gap.to - gap.from;
      gaps[cause_of(gap)].push_back(time.count());
    }
    for (const auto& [kind, count] : counts_) gaps.try_emplace(kind);
    std::printf("%-8s %7s %7s %12s %9s\n", "fault", "number", "gaps", "median ms", "p99 ms");
    for (const auto& [kind, times] : gaps) {
      std::printf("%-8s %7llu %7zu %12.1f %9.1f\n", kind.c_str(),
                  static_cast<unsigned long long>(counts_[kind]), times.size(),
                  quantile(times, 0.5), quantile(times, 0.99));
    }
  }

  const std::string folder_;
  Random random_;
  const std::uint64_t faults_;
  std::optional<torture::Refengines> refengines_;
  boost::asio::io_context loop_{1};
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::size_t workers_ = 0;
  std::optional<torture::Router> router_;
  std::vector<Question> questions_;
  std::vector<Client> clients_;
  std::size_t running_ = 0;
  bool is_good_ = true;
  bool is_stopping_ = false;
  /// Deaths and early faults so far.
  std::uint64_t hard_ = 0;
  std::uint64_t fired_ = 0;
  std::uint64_t answers_ = 0;
  std::map<std::string, std::uint64_t> counts_;
  std::map<std::string, std::vector<Event>> of_request_;
  std::vector<Event> deaths_;
  std::vector<Gap> gaps_;
  /// The router's memory.
  double warm_mib_ = 0;
  double end_mib_ = 0;
  double resumed_ = 0;
  double finished_ = 0;
  double retries_ = 0;
};

int usage() {
  std::fputs(
      "usage: route_torture [--engine oracle|refengine|pairs|pair] [--long | --faults N] "
      "[--seed N]\n",
      stderr);
  return base::to_int(base::ExitStatus::kUsage);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::optional<std::uint64_t> faults;
  std::uint64_t seed = std::random_device()();
  Kind kind = Kind::kOracle;
  bool is_long = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--long") {
      is_long = true;
      continue;
    }
    if (words[i] == "--engine" && i + 1 < words.size()) {
      ++i;
      const auto named = kEngineNames.find(words[i]);
      if (named == kEngineNames.end()) return usage();
      kind = named->second;
      continue;
    }
    const auto value = i + 1 < words.size() ? base::parse_uint(words[i + 1]) : std::nullopt;
    if (!value || (words[i] != "--faults" && words[i] != "--seed")) return usage();
    if (words[i] == "--seed") {
      seed = *value;
    } else {
      faults = *value;
    }
    ++i;
  }
  if (!faults) faults = kFaults.at(kind) * (is_long ? 10 : 1);
  try {
    std::string folder = "/tmp/route-torture.XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) base::throw_errno(errno, "create a folder");
    std::printf("seed %llu, folder %s\n", static_cast<unsigned long long>(seed), folder.c_str());
    std::fflush(stdout);
    if (!Torture(folder, kind, seed, *faults).run()) return 1;
    std::filesystem::remove_all(folder);
    return 0;
  } catch (const base::Error& error) {
    std::fprintf(stderr, "route_torture: error: %s\n", error.what());
    return base::to_int(error.status());
  }
}
