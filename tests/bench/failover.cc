// The time from SIGKILL of the active engine to a client's first token from the other engine, step
// by step: for an engine that sleeps beside it, and for one that starts only then (--engine cold),
// next to the start of an engine from its files.
// Usage: failover [--json FILE] [--quick] [--series] [RUNS [MIB ...]]
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "http/client.h"
#include "os/file/file.h"
#include "os/process/exec.h"
#include "os/process/process.h"
#include "os/socket/status_fd.h"
#include "report.h"
#include "support/ports.h"
#include "support/temp_dir.h"

namespace {

using namespace fo;
using base::Deadline;
using nlohmann::json;

const std::string kBin = FO_BUILD_DIR "/bin/";
constexpr std::uint64_t kUsualKvMib = 256;

Deadline soon() { return Deadline::after(std::chrono::minutes(3)); }

[[noreturn]] void give_up(const std::string& what) {
  throw base::Error(base::ExitStatus::kSoftware, what);
}

void nap() { ::poll(nullptr, 0, 1); }

using Environment = std::vector<std::pair<std::string, std::string>>;

/// A program of this project; the destructor ends it.
class Program {
 public:
  Program(std::vector<std::string> argv, Environment environment = {}, std::vector<int> keep = {})
      : quiet_(os::open_file("/dev/null", O_RDWR)) {
    argv.front() = kBin + argv.front();
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.stdin_fd = quiet_.get();
    options.stdout_fd = quiet_.get();
    options.environment = std::move(environment);
    options.keep_fds = std::move(keep);
    child_.emplace(os::spawn(argv, options));
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (!child_) return;
    child_->signal(SIGTERM);
    if (child_->wait(Deadline::after(std::chrono::seconds(20)))) return;
    child_->signal(SIGKILL);
    static_cast<void>(child_->wait(soon()));
  }
  void wait(int expected) {
    const auto status = child_->wait(soon());
    child_.reset();
    if (status != expected) give_up("a program ended in another way than it should");
  }
  [[nodiscard]] const os::Child& child() const { return *child_; }

 private:
  base::UniqueFd quiet_;
  std::optional<os::Child> child_;
};

/// The events that a program and its engine write to a file: the last time of each event and state.
class Events {
 public:
  explicit Events(const std::string& path)
      : path_(path),
        fd_(os::open_file(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND)),
        inner_fd_(os::open_file(path, O_RDWR | O_APPEND)) {}
  /// Descriptors for the program and for its engine.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] int inner_fd() const { return inner_fd_.get(); }
  /// The last times, in seconds of CLOCK_MONOTONIC.
  [[nodiscard]] std::map<std::string, double> read() const {
    std::map<std::string, double> times;
    const std::string text = os::read_file(path_, base::kMiB);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const json line = json::parse(text.substr(at, end - at), nullptr, false);
      at = end + 1;
      if (!line.is_object()) continue;
      const bool is_state = line.value("event", "") == "state";
      times[line.value(is_state ? "state" : "event", "")] = line.value("monotonic", 0.0);
    }
    return times;
  }
  void await(const std::string& name) const {
    const Deadline deadline = soon();
    while (!read().contains(name)) {
      if (deadline.expired()) give_up("no event '" + name + "' in " + path_);
      nap();
    }
  }

 private:
  std::string path_;
  base::UniqueFd fd_;
  base::UniqueFd inner_fd_;
};

/// Requests one token until it gets one; returns the time of that.
double first_token(int port) {
  const std::string url = "http://127.0.0.1:" + std::to_string(port) + "/v1/completions";
  http::FetchOptions options;
  options.body = R"({"prompt":"a","max_tokens":1})";
  for (const Deadline deadline = soon(); !deadline.expired(); nap()) {
    try {
      if (http::fetch("POST", url, deadline, options).status == 200) return os::monotonic_seconds();
    } catch (const base::Error&) {
      continue;
    }
  }
  give_up("no token");
}

bool has_room(const std::string& path, std::uint64_t mib) {
  return std::filesystem::space(path).available > mib * base::kMiB;
}

class Place {
 public:
  Place(std::uint64_t weights_mib, std::uint64_t kv_mib)
      : kv_mib_(kv_mib),
        device_(has_room("/dev/shm", weights_mib + 3 * kv_mib) ? "/dev/shm" : "/tmp") {
    os::set_environment("GMS_DRIVER", "sim");
    os::set_environment("GMS_SIM_DIR", device_.path());
    os::set_environment("GMS_SIM_VRAM",
                        std::to_string(weights_mib + weights_mib / 8 + kv_mib * 3 / 2) + "MiB");
    os::set_environment("GMS_SOCKET_DIR", dir_.path());
    os::set_environment("FAILOVER_LOCK_PATH", file("failover.lock"));
    // A layer of this shape has 43 MiB, and everything outside the layers 32 MiB.
    const std::uint64_t layers = std::max<std::uint64_t>(1, (weights_mib - 32) / 43);
    Program({"fo-refengine", "make-model", model(), "--layers", std::to_string(layers), "--hidden",
             "1024", "--heads", "16", "--kv-heads", "4", "--vocab", "4096", "--intermediate",
             "2816", "--dtype", "f32", "--seed", "7"})
        .wait(0);
  }
  [[nodiscard]] std::string model() const { return file("model"); }
  [[nodiscard]] std::string file(const std::string& name) const { return dir_.path(name); }
  /// The published port for clients, and the port of an engine under fo-shadow.
  [[nodiscard]] int port() const { return ports_[0].number(); }
  [[nodiscard]] int engine_port(int n) const {
    return ports_.at(1 + static_cast<std::size_t>(n)).number();
  }
  [[nodiscard]] std::string kv_size() const { return std::to_string(kv_mib_) + "MiB"; }
  [[nodiscard]] std::uint64_t weights_mib() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(model())) {
      bytes += entry.file_size();
    }
    return bytes / base::kMiB;
  }

  [[nodiscard]] std::unique_ptr<Program> serve_and_load() const {
    auto serve = std::make_unique<Program>(
        std::vector<std::string>{"gms-serve", "--devices", "0", "--tags", "weights", "-q"});
    Program({"gms-probe", "sockets", "--devices", "0", "--tags", "weights", "--wait", "30s"})
        .wait(0);
    Program({"gms-load", model(), "-q"}, {{"ENGINE_ID", "0"}}).wait(0);
    return serve;
  }

 private:
  std::uint64_t kv_mib_;
  test::TempDir dir_;
  test::TempDir device_;
  std::array<test::ReservedPort, 3> ports_;
};

struct Engine {
  std::unique_ptr<Events> events;
  std::unique_ptr<Program> shadow;
};

std::vector<std::string> engine_command(const Place& place, int port) {
  return {"fo-refengine",       "serve",      "--model",      place.model(), "--port",
          std::to_string(port), "--kv-bytes", place.kv_size()};
}

Engine start(const Place& place, int n, bool cold) {
  Engine engine;
  engine.events = std::make_unique<Events>(place.file("events." + std::to_string(n)));
  const std::string fd = std::to_string(engine.events->fd());
  const int port = place.engine_port(n);
  std::vector<std::string> argv{"fo-shadow",
                                "--engine",
                                cold ? "cold" : "vllm",
                                "--engine-url",
                                "http://127.0.0.1:" + std::to_string(port),
                                "--publish",
                                "127.0.0.1:" + std::to_string(place.port()),
                                "--gpu-free",
                                place.kv_size(),
                                "--port",
                                "-1",
                                "-q",
                                "--status-fd",
                                fd,
                                "--"};
  for (const std::string& word : engine_command(place, port)) argv.push_back(word);
  argv[15] = kBin + argv[15];
  argv.insert(argv.end(),
              {"--kv-retry", "0", "--status-fd", std::to_string(engine.events->inner_fd())});
  if (!cold) argv.emplace_back("--start-asleep");
  engine.shadow =
      std::make_unique<Program>(argv, Environment{{"ENGINE_ID", std::to_string(n)}},
                                std::vector<int>{engine.events->fd(), engine.events->inner_fd()});
  engine.events->await("waiting");
  return engine;
}

// The engine under a fo-shadow is its only child.
pid_t engine_of(const Engine& engine) {
  const std::string pid = std::to_string(engine.shadow->child().pid());
  const std::string children = os::read_file("/proc/" + pid + "/task/" + pid + "/children", 4096);
  return static_cast<pid_t>(std::atoi(children.c_str()));
}

using Phases = std::vector<std::pair<std::string, double>>;

// Kills the engine in `active`, and waits until the one in `standby` answers at `port`.
Phases fail_over(const Engine& active, const Engine& standby, int port) {
  const pid_t pid = engine_of(active);
  const auto pidfd = os::open_pidfd(pid);
  if (!pidfd) give_up("the active engine is gone already");
  const double killed = os::monotonic_seconds();
  os::send_signal(pidfd->get(), SIGKILL);
  pollfd dead{pidfd->get(), POLLIN, 0};
  ::poll(&dead, 1, soon().poll_timeout());
  const double gone = os::monotonic_seconds();
  const double token = first_token(port);
  const auto times = standby.events->read();
  Phases phases{{"process gone", gone - killed}};
  double last = gone;
  for (const auto& [name, label] :
       std::vector<std::pair<std::string, std::string>>{{"granted", "lock granted"},
                                                        {"gpu_free", "memory is free"},
                                                        {"checked", "layout checked"},
                                                        {"weights_mapped", "weights mapped"},
                                                        {"kv_allocated", "KV cache allocated"},
                                                        {"awake", "awake"},
                                                        {"first_token", "first token"},
                                                        {"active", "serving"}}) {
    const auto at = times.find(name);
    if (at == times.end()) give_up("no event '" + name + "'");
    phases.emplace_back(label, at->second - last);
    last = at->second;
  }
  phases.emplace_back("a client has its token", token - last);
  phases.emplace_back("all", token - killed);
  return phases;
}

using Table = std::vector<std::pair<std::string, std::vector<double>>>;

void add(Table& table, const Phases& phases) {
  if (table.empty()) {
    for (const auto& [label, took] : phases) table.push_back({label, {}});
  }
  for (std::size_t i = 0; i < phases.size(); ++i) table[i].second.push_back(phases[i].second);
}

// The same with a new pair.
Phases fail_over(const Place& place, bool cold) {
  const auto serve = place.serve_and_load();
  const Engine active = start(place, 0, cold);
  active.events->await("active");
  first_token(place.port());
  const Engine standby = start(place, 1, cold);
  return fail_over(active, standby, place.port());
}

// Starts with no process, and with the files in the page cache.
double start_from_files(const Place& place) {
  const double begin = os::monotonic_seconds();
  const auto serve = place.serve_and_load();
  const Program engine(engine_command(place, place.port()));
  return first_token(place.port()) - begin;
}

/// The times for one size of weights and KV cache.
struct Outcome {
  std::uint64_t weights_mib = 0;
  std::vector<double> from_files;
  Table warm;
  Table cold;
};

// nullopt if there is not enough space.
std::optional<Outcome> measure(std::uint64_t mib, std::uint64_t kv_mib, int runs,
                               bench::Report& report) {
  // For the model, and for the device if it does not fit in memory.
  if (!has_room("/tmp", 2 * mib + 3 * kv_mib)) {
    report.skip("failover with " + std::to_string(mib) + " MiB of weights", "no room in /tmp");
    return std::nullopt;
  }
  const Place place(mib, kv_mib);
  Outcome outcome;
  outcome.weights_mib = place.weights_mib();
  // The variants run in turns, and the first round does not count.
  for (int run = 0; run <= runs; ++run) {
    const double took = start_from_files(place);
    const Phases warm = fail_over(place, false);
    const Phases cold = fail_over(place, true);
    if (run == 0) continue;
    outcome.from_files.push_back(took);
    add(outcome.warm, warm);
    add(outcome.cold, cold);
  }
  return outcome;
}

void print(const Outcome& outcome, int runs) {
  const auto& [mib, from_files, warm, cold] = outcome;
  const auto spread = [](std::vector<double> values) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return (*most - *least) / bench::median(values) * 100;
  };
  std::printf("%llu MiB of weights, ms (median of %d, spread)%18s%20s\n",
              static_cast<unsigned long long>(mib), runs, "asleep", "cold");
  for (std::size_t i = 0; i < warm.size(); ++i) {
    std::printf("  %-40s %12.1f %5.0f%% %12.1f %5.0f%%\n", warm[i].first.c_str(),
                bench::median(warm[i].second) * 1000, spread(warm[i].second),
                bench::median(cold[i].second) * 1000, spread(cold[i].second));
  }
  const double files = bench::median(from_files);
  std::printf("  %-40s %12.1f %5.0f%%\n  %-40s %12.1f %19.1f\n\n", "an engine from its files",
              files * 1000, spread(from_files), "times faster than that",
              files / bench::median(warm.back().second), files / bench::median(cold.back().second));
}

std::vector<double> in_ms(std::vector<double> seconds) {
  for (double& value : seconds) value *= 1e3;
  return seconds;
}

void compare(const Outcome& outcome, bench::Report& report) {
  const std::string what = "SIGKILL of the active engine -> a client's first token, " +
                           std::to_string(outcome.weights_mib) + " MiB of weights";
  const bench::Values files{"an engine from its files", in_ms(outcome.from_files)};
  for (const auto& [name, table] : {std::pair{"asleep", &outcome.warm}, {"cold", &outcome.cold}}) {
    report.row(what, "ms", {name, in_ms(table->back().second)}, files);
  }
  for (std::size_t i = 0; i + 1 < outcome.warm.size(); ++i) {
    const auto& [label, seconds] = outcome.warm[i];
    report.row(what, "ms", {"  asleep, its part: " + label, in_ms(seconds)});
  }
}

void show_scaling(int runs, bool quick, bench::Report& report) {
  const auto point = [&](const std::string& title, std::uint64_t n, std::uint64_t mib,
                         std::uint64_t kv_mib) {
    const auto outcome = measure(mib, kv_mib, runs, report);
    if (!outcome) return;
    report.points(title, "MiB", n, "ms", 1e3,
                  {{"asleep", {}, outcome->warm.back().second},
                   {"cold", {}, outcome->cold.back().second},
                   {"an engine from its files", {}, outcome->from_files}});
  };
  using Sizes = std::vector<std::uint64_t>;
  for (const std::uint64_t mib : quick ? Sizes{64} : Sizes{64, 128, 256, 512, 1024}) {
    point("Failover with N MiB of weights", mib, mib, kUsualKvMib);
  }
  for (const std::uint64_t mib : quick ? Sizes{64} : Sizes{64, 128, 256, 512, 1024}) {
    point("Failover with N MiB of KV cache", mib, 64, mib);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run(
      "failover", argc, argv, [](const bench::Arguments& arguments, bench::Report& report) {
        const auto& rest = arguments.rest;
        const int usual = arguments.quick ? 1 : 5;
        const int runs = rest.empty() ? usual : std::max(1, std::atoi(rest[0].c_str()));
        if (arguments.series) return show_scaling(runs, arguments.quick, report);
        std::vector<std::uint64_t> sizes;
        for (std::size_t i = 1; i < rest.size(); ++i) {
          sizes.push_back(base::parse_uint(rest[i]).value_or(64));
        }
        if (sizes.empty() && arguments.quick) sizes = {64};
        if (sizes.empty()) sizes = {64, 1024, 4096};
        for (const std::uint64_t mib : sizes) {
          const auto outcome = measure(mib, kUsualKvMib, runs, report);
          if (!outcome) continue;
          print(*outcome, runs);
          compare(*outcome, report);
        }
      });
}
