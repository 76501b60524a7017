// fo-route beside haproxy and nginx, in front of the same engines: the time that each adds to a
// short request, its CPU time for that and for a streamed token, its memory, the requests that fail
// when engines are killed (also beside a gateway for language models), and the time until an engine
// sees that its client has disconnected. fo-route is also measured beside itself with --no-resume,
// and before and after the death of an engine. Each proxy has a core of its own; the engines
// (fo-oracle) and the clients share another one.
//
// Usage: route_proxies [--json FILE] [--quick] [RUNS [KILLS]]
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "http/client.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/process/process.h"
#include "report.h"
#include "route/resume/budget.h"
#include "route_deaths.h"
#include "route_load.h"
#include "route_peers.h"
#include "usage.h"

namespace {

using namespace fo;
using bench::Client;
using bench::Comparison;
using bench::Engine;
using bench::Engines;
using bench::Kind;
using bench::Proxy;
using boost::asio::awaitable;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kEngines = 4;
// Clients that send requests while engines are killed; half of them read streams.
constexpr std::size_t kLoad = 32;
// Descriptors of a proxy besides those of its connections.
constexpr std::size_t kOtherFds = 300;
// Metrics of an engine.
const std::string kRequests = R"(oracle_requests_total{model_name="oracle"})";
const std::string kAborted =
    R"(vllm:request_success_total{model_name="oracle",finished_reason="abort"})";

struct Sizes {
  std::size_t runs = 5;
  std::size_t kills = 40;
  std::size_t requests = 2000;
  std::size_t streams = 64;
  std::size_t tokens = 150;
  std::size_t gaps = 300;
  std::size_t closes = 20;
  std::vector<std::size_t> held = {1000, 10'000};
  std::size_t long_streams = 32;
  std::size_t long_tokens = 4096;
  std::size_t pauses = 20;
};

Sizes read_sizes(const bench::Arguments& arguments) {
  Sizes sizes;
  if (arguments.quick) sizes = {1, 2, 50, 8, 20, 20, 2, {100}, 2, 64, 2};
  const std::vector<std::string>& rest = arguments.rest;
  bench::Arguments runs = arguments;
  runs.rest.resize(std::min<std::size_t>(rest.size(), 1));
  sizes.runs = bench::parse_runs(runs, sizes.runs);
  if (rest.size() < 2) return sizes;
  const auto kills = base::parse_uint(rest[1]);
  if (rest.size() > 2 || !kills || *kills < 1) {
    throw base::Error(base::ExitStatus::kUsage,
                      "usage: [--json FILE] [--quick] [RUNS [KILLS]], at least 1 of each");
  }
  sizes.kills = *kills;
  return sizes;
}

[[noreturn]] void fail(const std::string& what) {
  throw base::Error(base::ExitStatus::kSoftware, what);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// The values of the peers, which are measured in turns.
class Results {
 public:
  void add(Kind kind, double value) { values_[kind].push_back(value); }
  [[nodiscard]] bench::Values of(Kind kind) const { return {name_of(kind), values_.at(kind)}; }
  /// Subtracts the values that were measured without a proxy in the same turn.
  void subtract_direct() {
    const std::vector<double> direct = std::move(values_.extract(Kind::kNoProxy).mapped());
    for (auto& [kind, values] : values_) {
      for (std::size_t turn = 0; turn < values.size(); ++turn) values[turn] -= direct[turn];
    }
  }
  /// One table, with fo-route first, and a row for each of the other proxies. `aim` is that beside
  /// haproxy, `aim_beside_itself` that beside fo-route without resuming.
  void report(bench::Report& report, const std::string& what, const std::string& unit, double scale,
              bench::Aim aim = {}, bench::Aim aim_beside_itself = {}) const {
    std::vector<bench::Contender> contenders;
    std::vector<Comparison> comparisons;
    const std::string ours = name_of(Kind::kFoRoute);
    for (const auto& [kind, values] : values_) {
      contenders.push_back({name_of(kind), {}, values});
      if (kind == Kind::kNoResume) comparisons.push_back({ours, name_of(kind), aim_beside_itself});
      if (kind == Kind::kHaproxy) comparisons.push_back({ours, name_of(kind), aim});
      if (kind == Kind::kNginx) comparisons.push_back({ours, name_of(kind)});
    }
    if (comparisons.empty()) {
      const bool is_value = aim.of == bench::Aim::Of::kValue;
      comparisons.push_back({ours, "", is_value ? aim : bench::Aim{}});
    }
    report.table(what, unit, scale, contenders, comparisons);
  }

 private:
  std::map<Kind, std::vector<double>> values_;
};

// The CPU time of a proxy less what it uses without requests.
class CpuMeter {
 public:
  explicit CpuMeter(const Proxy& proxy) : pid_(proxy.pid()) {
    const double before = bench::cpu_seconds(pid_);
    const auto begin = Clock::now();
    loop::run_to_end(loop::pause_for(std::chrono::milliseconds(500)));
    idle_ = (bench::cpu_seconds(pid_) - before) / seconds_since(begin);
  }
  double measure(const std::function<void()>& body) const {
    const double before = bench::cpu_seconds(pid_);
    const double seconds = bench::seconds_of(body);
    return bench::cpu_seconds(pid_) - before - idle_ * seconds;
  }

 private:
  pid_t pid_;
  double idle_ = 0;
};

class Bench {
 public:
  Bench(const bench::Arguments& arguments, bench::Report& report)
      : sizes_(read_sizes(arguments)), report_(report), fds_(os::raise_fd_limit()) {
    for (const Kind kind : {Kind::kHaproxy, Kind::kNginx}) {
      if (is_installed(kind, "it is not installed")) proxies_.push_back(kind);
    }
    has_gateway_ = is_installed(Kind::kGateway,
                                "it is not installed: tests/bench/install-gateway " FO_BUILD_DIR);
  }

  void run() {
    short_requests();
    streamed_tokens();
    neighbours();
    memory();
    long_streams();
    pauses();
    first_tokens();
    closes();
    kills();
  }

 private:
  /// If not, reports `reason`.
  bool is_installed(Kind kind, const std::string& reason);
  void short_requests();
  void streamed_tokens();
  void neighbours();
  void memory();
  void long_streams();
  void pauses();
  void first_tokens();
  void closes();
  void kills();
  /// Starts all proxies and those of `others`, and calls `measure` for each in turns, after one
  /// round that does not count.
  void take_turns(const Engines& engines, const std::vector<Kind>& others,
                  const std::function<void(const Proxy&, const CpuMeter&, bool counts)>& measure);

  const Sizes sizes_;
  bench::Report& report_;
  const std::size_t fds_;
  bench::Cores cores_;
  std::vector<Kind> proxies_ = {Kind::kFoRoute};
  bool has_gateway_ = false;
};

bool Bench::is_installed(Kind kind, const std::string& reason) {
  try {
    const Engines engines = bench::start_engines(1, {});
    const Proxy proxy(kind, cores_, engines, kLoad);
    return true;
  } catch (const base::Error& error) {
    if (error.status() != base::ExitStatus::kNotFound) throw;
    report_.skip("fo-route beside " + name_of(kind), reason);
    return false;
  }
}

void Bench::take_turns(
    const Engines& engines, const std::vector<Kind>& others,
    const std::function<void(const Proxy&, const CpuMeter&, bool counts)>& measure) {
  std::vector<Kind> kinds = others;
  kinds.insert(kinds.end(), proxies_.begin(), proxies_.end());
  std::vector<std::unique_ptr<Proxy>> running;
  std::vector<CpuMeter> meters;
  for (const Kind kind : kinds) {
    running.push_back(std::make_unique<Proxy>(kind, cores_, engines, 2 * sizes_.streams));
    meters.emplace_back(*running.back());
  }
  for (std::size_t turn = 0; turn <= sizes_.runs; ++turn) {
    for (std::size_t i = 0; i < running.size(); ++i) {
      try {
        measure(*running[i], meters[i], turn > 0);
      } catch (const base::Error& error) {
        throw base::Error(error.status(), running[i]->name() + ": " + error.what());
      }
    }
  }
}

awaitable<void> ask(Client& client, std::string body) {
  const bool is_answered = co_await client.ask(std::move(body));
  if (!is_answered) fail("ask: the answer is not whole");
}

awaitable<void> ask_in_turn(std::uint16_t port, std::size_t count, std::vector<double>& seconds) {
  Client client(port);
  const std::string body = bench::completion(1, false);
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    co_await ask(client, body);
    seconds.push_back(seconds_since(begin));
  }
}

void Bench::short_requests() {
  const Engines engines = bench::start_engines(kEngines, {});
  const std::vector<Kind> others{Kind::kNoProxy, Kind::kNoResume};
  Results half;
  Results late;
  Results cpu;
  take_turns(engines, others, [&](const Proxy& proxy, const CpuMeter& meter, bool counts) {
    std::vector<double> seconds;
    const double used = meter.measure(
        [&] { loop::run_to_end(ask_in_turn(proxy.port(), sizes_.requests, seconds)); });
    if (!counts) return;
    half.add(proxy.kind(), quantile(seconds, 0.5));
    late.add(proxy.kind(), quantile(seconds, 0.99));
    if (proxy.pid() == 0) return;
    cpu.add(proxy.kind(), used / static_cast<double>(sizes_.requests));
  });
  std::printf("A short request without a proxy: p50 %.0f us, p99 %.0f us\n\n",
              bench::median(half.of(Kind::kNoProxy).values) * 1e6,
              bench::median(late.of(Kind::kNoProxy).values) * 1e6);
  half.subtract_direct();
  late.subtract_direct();
  half.report(report_, "added time of a short request, p50", "us", 1e6, bench::cost_at_most(1.5));
  late.report(report_, "added time of a short request, p99", "us", 1e6, bench::cost_at_most(1.5));
  cpu.report(report_, "CPU for a short request", "us", 1e6);
}

awaitable<void> read_streams(std::uint16_t port, std::size_t streams, std::size_t tokens) {
  const auto loop = co_await boost::asio::this_coro::executor;
  const std::string body = bench::completion(tokens, true);
  std::vector<std::unique_ptr<Client>> clients;
  std::size_t left = streams;
  std::exception_ptr failure;
  const auto on_end = [&](const std::exception_ptr& error) {
    if (error) failure = error;
    --left;
  };
  for (std::size_t i = 0; i < streams; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    loop::spawn(loop, ask(*clients.back(), body), on_end);
  }
  while (left > 0) co_await loop::pause_for(std::chrono::milliseconds(1));
  if (failure) std::rethrow_exception(failure);
}

void Bench::streamed_tokens() {
  const Engines engines = bench::start_engines(kEngines, {"--gap", "10ms"});
  const std::vector<Kind> others{Kind::kNoResume};
  Results cpu;
  take_turns(engines, others, [&](const Proxy& proxy, const CpuMeter& meter, bool counts) {
    const double used = meter.measure(
        [&] { loop::run_to_end(read_streams(proxy.port(), sizes_.streams, sizes_.tokens)); });
    const auto tokens = static_cast<double>(sizes_.streams * sizes_.tokens);
    if (counts) cpu.add(proxy.kind(), used / tokens);
  });
  cpu.report(report_, "CPU for a streamed token", "us", 1e6, bench::cost_at_most(2),
             bench::cost_at_most(1.2));
}

// Reads a stream of so many tokens: the longest time between two of its pieces.
awaitable<void> find_longest_gap(std::uint16_t port, std::size_t tokens, double& seconds) {
  Client client(port);
  bool goes_on = co_await client.begin(bench::completion(tokens, true));
  if (!goes_on) fail("a stream is refused");
  goes_on = co_await client.read();
  seconds = 0;
  while (goes_on) {
    const auto begin = Clock::now();
    goes_on = co_await client.read();
    seconds = std::max(seconds, seconds_since(begin));
  }
}

// Asks for long answers, in one piece and as streams with a long first event, until `is_over`.
awaitable<void> ask_for_long_answers(std::uint16_t port, const bool& is_over) {
  const std::string request =
      R"({"model":"oracle","prompt":"Long","ignore_eos":true,"max_tokens":1,)";
  const std::vector<std::string> bodies{
      request + R"("oracle":{"padding":4000000}})",
      request + R"("stream":true,"oracle":{"padding":15000000}})",
  };
  Client client(port);
  while (!is_over) {
    for (const std::string& body : bodies) co_await ask(client, body);
  }
}

awaitable<void> find_longest_gap_beside(std::uint16_t port, std::size_t tokens, double& seconds) {
  const auto loop = co_await boost::asio::this_coro::executor;
  bool is_over = false;
  bool has_ended = false;
  std::exception_ptr failure;
  loop::spawn(loop, ask_for_long_answers(port, is_over), [&](const std::exception_ptr& error) {
    failure = error;
    has_ended = true;
  });
  co_await find_longest_gap(port, tokens, seconds);
  is_over = true;
  while (!has_ended) co_await loop::pause_for(std::chrono::milliseconds(1));
  if (failure) std::rethrow_exception(failure);
}

void Bench::neighbours() {
  const Engines engines = bench::start_engines(kEngines, {"-q", "--gap", "5ms"});
  Results slowed;
  take_turns(engines, {}, [&](const Proxy& proxy, const CpuMeter&, bool counts) {
    double alone = 0;
    double beside = 0;
    loop::run_to_end(find_longest_gap(proxy.port(), sizes_.gaps, alone));
    loop::run_to_end(find_longest_gap_beside(proxy.port(), sizes_.gaps, beside));
    if (counts) slowed.add(proxy.kind(), beside - alone);
  });
  slowed.report(report_, "longest gap of a stream beside long answers, less that of one alone",
                "ms", 1e3, bench::value_at_most(10));
}

// Opens streams that go on, and calls `on_open` when there are as many as each of `counts`.
awaitable<void> hold_streams(const Proxy& proxy, std::vector<std::size_t> counts,
                             std::function<void(std::size_t count)> on_open) {
  std::vector<std::unique_ptr<Client>> clients;
  const std::string body = bench::completion(2, true);
  for (const std::size_t count : counts) {
    while (clients.size() < count) {
      clients.push_back(std::make_unique<Client>(proxy.port()));
      bool is_open = co_await clients.back()->begin(body);
      if (is_open) is_open = co_await clients.back()->read();
      if (!is_open) {
        fail(name_of(proxy.kind()) + ": stream " + std::to_string(clients.size()) + " is refused");
      }
    }
    on_open(count);
  }
}

void Bench::memory() {
  // Each stream has two connections.
  const std::size_t most = (fds_ - std::min(fds_, kOtherFds)) / 2;
  std::vector<std::size_t> counts;
  for (const std::size_t count : sizes_.held) counts.push_back(std::min(count, most));
  Results idle;
  std::map<std::size_t, Results> held;
  for (std::size_t turn = 0; turn < sizes_.runs; ++turn) {
    for (const Kind kind : proxies_) {
      const Engines engines = bench::start_engines(kEngines, {"--gap", "10m"});
      const Proxy proxy(kind, cores_, engines, counts.back());
      const double before = bench::own_mib(proxy.pid());
      idle.add(kind, before);
      const auto on_open = [&](std::size_t count) {
        const double kib = (bench::own_mib(proxy.pid()) - before) * 1024;
        held[count].add(kind, kib / static_cast<double>(count));
      };
      loop::run_to_end(hold_streams(proxy, counts, on_open));
    }
  }
  idle.report(report_, "memory of an idle proxy", "MiB", 1);
  for (const auto& [count, kib] : held) {
    const std::string what = "memory for one of " + std::to_string(count) + " streams";
    kib.report(report_, what, "KiB", 1, bench::value_at_most(32));
  }
}

// Reads streams until each has as many tokens, and calls `on_open`.
awaitable<void> hold_long_streams(std::uint16_t port, std::size_t streams, std::size_t tokens,
                                  std::function<void()> on_open) {
  std::vector<std::unique_ptr<Client>> clients;
  const std::string body = bench::completion(2 * tokens, true);
  for (std::size_t i = 0; i < streams; ++i) {
    clients.push_back(std::make_unique<Client>(port));
    const bool is_open = co_await clients.back()->begin(body);
    if (!is_open) fail("a stream is refused");
    std::size_t at = 0;
    for (std::size_t token = 0; token < tokens; ++token) {
      at = co_await clients.back()->read_until("data: ", at) + 1;
    }
  }
  on_open();
}

void Bench::long_streams() {
  const std::string tokens = std::to_string(sizes_.long_tokens);
  // Some events have several tokens, because a character does.
  const std::string last = std::to_string(sizes_.long_tokens * 5 / 4);
  std::vector<Kind> kinds = proxies_;
  kinds.push_back(Kind::kNoResume);
  Results held;
  for (std::size_t turn = 0; turn < sizes_.runs; ++turn) {
    for (const Kind kind : kinds) {
      const Engines engines = bench::start_engines(kEngines, {"--fail", "stall@" + last});
      const Proxy proxy(kind, cores_, engines, sizes_.long_streams);
      const double before = bench::own_mib(proxy.pid());
      const auto on_open = [&] {
        const double kib = (bench::own_mib(proxy.pid()) - before) * 1024;
        held.add(kind, kib / static_cast<double>(sizes_.long_streams));
      };
      loop::run_to_end(
          hold_long_streams(proxy.port(), sizes_.long_streams, sizes_.long_tokens, on_open));
    }
  }
  held.report(report_, "memory for a stream after " + tokens + " tokens", "KiB", 1,
              bench::value_at_most(64));
}

// The value of one of an engine's metrics, whose line begins with `series`.
awaitable<double> read_metric(std::string url, std::string series) {
  std::string page_url = url + "/metrics";
  const http::FetchOptions options;
  const http::Response page =
      co_await http::async_fetch("GET", std::move(page_url), test::soon(), options);
  const std::size_t at = page.body.find("\n" + series + " ");
  if (at == page.body.npos) fail("read a metric " + base::quoted(series) + ": it is missing");
  co_return std::stod(page.body.substr(at + series.size() + 2));
}

awaitable<bool> answers(const Engine& engine) {
  try {
    co_await read_metric(engine.url(), kRequests);
    co_return true;
  } catch (const base::Error&) {
    co_return false;
  }
}

// The time until an engine's first token.
awaitable<double> first_token(std::uint16_t port) {
  Client client(port);
  const std::string body = bench::completion(2, true);
  const auto begin = Clock::now();
  const bool is_open = co_await client.begin(body);
  if (!is_open) fail("a stream is refused");
  co_await client.read_until("data: ");
  co_return seconds_since(begin);
}

// Kills the engine of a stream, one after the other: the time until the first token of the other
// engine, less the time that this engine takes to its first token.
awaitable<void> pause_streams(std::uint16_t port, Engines& engines, std::size_t count,
                              std::vector<double>& seconds) {
  const std::string body = bench::completion(1000, true);
  while (seconds.size() < count) {
    std::vector<double> requests;
    std::vector<double> first;
    for (const Engine& engine : engines) {
      first.push_back(co_await first_token(engine.port()));
      requests.push_back(co_await read_metric(engine.url(), kRequests));
    }
    Client client(port);
    const bool is_open = co_await client.begin(body);
    if (!is_open) fail("a stream is refused");
    co_await client.read_until("data: ");
    const double now = co_await read_metric(engines.front().url(), kRequests);
    const std::size_t serving = now > requests.front() ? 0 : 1;
    const auto begin = Clock::now();
    engines[serving].kill();
    const std::size_t at = co_await client.read_until(": fo-route: resumed");
    co_await client.read_until("data: ", at);
    seconds.push_back(seconds_since(begin) - first[1 - serving]);
    client.close();
    engines[serving].restart();
    const base::Deadline deadline = test::soon();
    bool is_ready = false;
    while (!is_ready && !deadline.expired()) {
      co_await loop::pause_for(std::chrono::milliseconds(200));
      is_ready = co_await answers(engines[serving]);
    }
  }
}

void Bench::pauses() {
  Results pauses;
  for (std::size_t turn = 0; turn < sizes_.runs; ++turn) {
    Engines engines = bench::start_engines(2, {"-q", "--first-token", "20ms", "--gap", "5ms"});
    const Proxy proxy(Kind::kFoRoute, cores_, engines, kLoad);
    std::vector<double> seconds;
    loop::run_to_end(pause_streams(proxy.port(), engines, sizes_.pauses, seconds));
    pauses.add(Kind::kFoRoute, bench::median(seconds));
  }
  pauses.report(report_,
                "SIGKILL of a stream's engine -> next token, beyond the first token's time", "ms",
                1e3, bench::value_at_most(20));
}

// The streams fill three quarters of the slots that are left after the death.
void Bench::first_tokens() {
  constexpr std::size_t kSlots = 16;
  constexpr std::size_t kStreams = kSlots * (kEngines - 1) * 3 / 4;
  const std::vector<std::string> options{"-q",      "--first-token",       "20ms", "--gap", "5ms",
                                         "--slots", std::to_string(kSlots)};
  std::vector<double> half[2];
  std::vector<double> late[2];
  std::size_t resumed = 0;
  for (std::size_t turn = 0; turn < sizes_.runs; ++turn) {
    Engines engines = bench::start_engines(kEngines, options);
    const Proxy proxy(Kind::kFoRoute, cores_, engines, kSlots);
    bench::LoadOfDeath load(proxy.port());
    loop::run_to_end(load.run(kStreams, engines.front()));
    resumed += load.resumed();
    for (const bool is_after : {false, true}) {
      const std::vector<double>& seconds = is_after ? load.after() : load.before();
      if (seconds.empty()) fail("send a request beside an engine's death: none is answered");
      half[is_after ? 1 : 0].push_back(quantile(seconds, 0.5));
      late[is_after ? 1 : 0].push_back(quantile(seconds, 0.99));
    }
  }
  const std::size_t budget = route::ResumeBudget::max_running(kSlots * (kEngines - 1));
  std::printf("%zu streams were resumed after %zu deaths, at most %zu at a time\n\n", resumed,
              sizes_.runs, budget);
  // A fifth of the slots may repeat the work of the dead engine.
  const std::string what = "first token of other requests at a SIGKILL, ";
  const auto table = [&](const std::string& share, const std::vector<double>* seconds) {
    report_.table(what + share, "ms", 1e3,
                  {{"before", {}, seconds[0]}, {"in 1 s after it", {}, seconds[1]}},
                  {{"in 1 s after it", "before", bench::cost_at_most(1.25)}});
  };
  table("p50", half);
  table("p99", late);
}

// Closes streams one after the other; the times until the engine has noticed.
awaitable<void> close_streams(std::uint16_t port, std::string engine, std::size_t count,
                              std::vector<double>& seconds) {
  const std::string body = bench::completion(1000, true);
  for (std::size_t i = 0; i < count; ++i) {
    const double before = co_await read_metric(engine, kAborted);
    Client client(port);
    bool is_open = co_await client.begin(body);
    if (is_open) is_open = co_await client.read();
    if (!is_open) fail("a stream is refused");
    client.close();
    const auto begin = Clock::now();
    double now = before;
    while (now == before) now = co_await read_metric(engine, kAborted);
    seconds.push_back(seconds_since(begin));
  }
}

void Bench::closes() {
  const Engines engines = bench::start_engines(1, {"--gap", "1s"});
  Results half;
  Results latest;
  take_turns(engines, {Kind::kNoProxy}, [&](const Proxy& proxy, const CpuMeter&, bool counts) {
    std::vector<double> seconds;
    loop::run_to_end(close_streams(proxy.port(), engines.front().url(), sizes_.closes, seconds));
    if (!counts) return;
    half.add(proxy.kind(), quantile(seconds, 0.5));
    latest.add(proxy.kind(), quantile(seconds, 1));
  });
  const std::string what = "a client disconnects -> the engine sees it, ";
  half.report(report_, what + "median", "ms", 1e3, bench::value_at_most(100));
  latest.report(report_, what + "maximum", "ms", 1e3, bench::value_at_most(100));
}

struct Load {
  bool is_over = false;
  std::size_t requests = 0;
  std::size_t failed_whole = 0;
  std::size_t failed_streams = 0;
  std::size_t kills = 0;
  /// For each client, the kills before its request.
  std::vector<std::size_t> kills_before = {};

  /// Whether each request in flight began after the last kill. fo-route refuses, for ten minutes,
  /// one that was in flight at two deaths of engines without progress between them.
  [[nodiscard]] bool is_renewed() const {
    return std::all_of(kills_before.begin(), kills_before.end(),
                       [this](std::size_t before) { return before == kills; });
  }
};

awaitable<void> send_load(const Proxy& proxy, std::size_t number, Load& load) {
  Client client(proxy.port(), proxy.headers());
  const bool is_stream = number % 2 == 0;
  const std::string body = bench::completion(20, is_stream);
  while (!load.is_over) {
    load.kills_before[number] = load.kills;
    const bool is_answered = co_await client.ask(body);
    ++load.requests;
    if (is_answered) continue;
    ++(is_stream ? load.failed_streams : load.failed_whole);
  }
}

// Whether each engine answers; and this one has requests.
awaitable<bool> may_kill(const Engines& engines, const Engine& engine) {
  try {
    for (const Engine& each : engines) {
      const double requests = co_await read_metric(each.url(), kRequests);
      if (&each == &engine && requests == 0) co_return false;
    }
  } catch (const base::Error&) {
    co_return false;
  }
  co_return true;
}

// Kills one engine after the other.
awaitable<void> kill_engines(Engines& engines, std::size_t count, Load& load) {
  base::Deadline deadline = test::soon();
  for (std::size_t next = 0; load.kills < count; ++next) {
    if (deadline.expired()) fail("kill an engine: none gets requests while all are ready");
    co_await loop::pause_for(std::chrono::milliseconds(100));
    Engine& engine = engines[next % engines.size()];
    const bool is_killable = co_await may_kill(engines, engine);
    if (!is_killable || !load.is_renewed()) continue;
    engine.restart();
    ++load.kills;
    deadline = test::soon();
  }
  co_await loop::pause_for(std::chrono::milliseconds(100));
  load.is_over = true;
}

awaitable<void> load_and_kill(const Proxy& proxy, Engines& engines, std::size_t kills, Load& load) {
  const auto loop = co_await boost::asio::this_coro::executor;
  load.kills_before.resize(kLoad);
  for (std::size_t i = 0; i < kLoad; ++i) {
    loop::spawn(loop, send_load(proxy, i, load));
  }
  co_await kill_engines(engines, kills, load);
}

void Bench::kills() {
  Results whole;
  Results streams;
  std::vector<Kind> kinds = proxies_;
  if (has_gateway_) kinds.push_back(Kind::kGateway);
  kinds.push_back(Kind::kNoResume);
  for (const Kind kind : kinds) {
    Engines engines =
        bench::start_engines(kEngines, {"-q", "--first-token", "5ms", "--gap", "2ms"});
    const Proxy proxy(kind, cores_, engines, kLoad);
    Load load;
    loop::run_to_end(load_and_kill(proxy, engines, sizes_.kills, load));
    std::printf("%s: of %zu requests, %zu whole answers and %zu streams failed in %zu SIGKILLs\n",
                proxy.name().c_str(), load.requests, load.failed_whole, load.failed_streams,
                sizes_.kills);
    whole.add(kind, static_cast<double>(load.failed_whole));
    streams.add(kind, static_cast<double>(load.failed_streams));
  }
  const std::string what = " failed in " + std::to_string(sizes_.kills) + " SIGKILLs of engines";
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    const auto row = [&](const std::string& of, const Results& failed) {
      report_.row(of + what, "requests", failed.of(Kind::kFoRoute), failed.of(kinds[i]),
                  bench::value_at_most(0));
    };
    row("whole answers", whole);
    row("streams", streams);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run("route_proxies", argc, argv,
                    [](const bench::Arguments& arguments, bench::Report& report) {
                      Bench(arguments, report).run();
                    });
}
