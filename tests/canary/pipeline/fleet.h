// Engines in a registry, and the programs that watch them: what the programs of this folder and a
// bench have in common. Used from the thread that runs `loop`.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "fleet/record/instance.h"
#include "fleet/registry/dir_registry.h"
#include "fleet/verdict.h"
#include "http/client.h"
#include "loop/pause.h"
#include "loop/run.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "support/soon.h"

namespace fo::pipeline {

using boost::asio::awaitable;
using Clock = base::Deadline::Clock;

/// Long enough for a machine that is busy with other things.
inline base::Deadline long_after() { return base::Deadline::after(std::chrono::minutes(4)); }

inline double milliseconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// The value at this share of the sorted values; 0 without any.
inline double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

/// The sum of the series in Prometheus' text whose lines begin with `begin` and contain `part`.
inline double sum_of(const std::string& page, const std::string& begin,
                     const std::string& part = {}) {
  double sum = 0;
  for (std::size_t at = 0; at < page.size();) {
    const std::size_t end = std::min(page.find('\n', at), page.size());
    const std::string line = page.substr(at, end - at);
    const bool is_meant = line.starts_with(begin) && line.find(part) != line.npos;
    if (is_meant) sum += std::strtod(line.c_str() + line.rfind(' '), nullptr);
    at = end + 1;
  }
  return sum;
}

[[noreturn]] inline void fail(const std::string& what) {
  throw base::Error(base::ExitStatus::kSoftware, what);
}

/// A program with its log in a file. Destroying it kills it.
class Program {
 public:
  /// The words after fo-NAME in `argv`. With `is_daemon`, waits until it is ready.
  Program(const std::string& folder, const std::string& name, std::vector<std::string> argv,
          bool is_daemon)
      : log_(folder + "/" + name + ".log") {
    argv.insert(argv.begin(), FO_BUILD_DIR "/bin/fo-" + name);
    os::Pipe ready;
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    options.environment = {{"FO_LOG_FORMAT", "text"}};
    const base::UniqueFd log = os::open_file(log_, O_WRONLY | O_CREAT | O_APPEND);
    const base::UniqueFd out =
        os::open_file(folder + "/" + name + ".out", O_WRONLY | O_CREAT | O_TRUNC);
    options.stdout_fd = out.get();
    options.stderr_fd = log.get();
    if (is_daemon) {
      argv.insert(argv.end(), {"--ready-fd", std::to_string(ready.writer.get())});
      options.keep_fds = {ready.writer.get()};
    }
    child_.emplace(os::spawn(argv, options));
    if (!is_daemon) return;
    ready.writer.reset();
    std::array<char, 64> space;
    while (ready_.empty() || ready_.back() != '\n') {
      const ssize_t count = ::read(ready.reader.get(), space.data(), space.size());
      if (count <= 0) fail("start fo-" + name + ": it is not ready: see " + log_);
      ready_.append(space.data(), static_cast<std::size_t>(count));
    }
    ready_.pop_back();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (!child_) return;
    child_->signal(SIGKILL);
    static_cast<void>(child_->wait(base::Deadline::never()));
  }

  /// The text that it wrote when it was ready: an address or a port.
  [[nodiscard]] const std::string& ready() const { return ready_; }
  [[nodiscard]] const std::string& log() const { return log_; }
  [[nodiscard]] pid_t pid() const { return child_->pid(); }
  /// Its status if it ends before the deadline; then nothing else may be called.
  std::optional<int> wait(base::Deadline deadline) {
    const std::optional<int> status = child_->wait(deadline);
    if (status) child_.reset();
    return status;
  }

 private:
  std::string log_;
  std::string ready_;
  std::optional<os::Child> child_;
};

/// The PCI address of each worker's GPU.
inline constexpr char kGpu[] = "0000:3b:00.0";

/// A folder with a registry, the questions to its workers, and a canary.
class Fleet {
 public:
  explicit Fleet(std::string folder)
      : folder_(std::move(folder)), registry_(fleet::make_dir_registry(folder_ + "/registry")) {}

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string registry() const { return "dir:" + folder_ + "/registry"; }
  [[nodiscard]] std::string canaries() const { return folder_ + "/canaries.json"; }

  /// Registers a worker on the GPU kGpu of a host; returns its id.
  awaitable<std::string> add(std::string url, std::string host = {}) {
    fleet::Instance instance{.id = fleet::make_instance_id(),
                             .url = std::move(url),
                             .model = "oracle",
                             .life = fleet::Life::kReady,
                             .host = std::move(host)};
    instance.gpus = {kGpu};
    const fleet::EndpointId endpoint{"ns", "worker", "generate"};
    fleet::Record record{fleet::instance_key(endpoint, instance.id), fleet::encode(instance)};
    const base::Deadline deadline = test::soon();
    kept_[instance.id] = co_await registry_->register_record(std::move(record), deadline);
    co_return instance.id;
  }
  awaitable<void> remove(std::string id) {
    const base::Deadline deadline = test::soon();
    co_await kept_.at(id)->deregister(deadline);
    kept_.erase(id);
  }

  /// Learns the answers to `count` questions of over 48 tokens from two engines. The engines may
  /// run on the loop of this coroutine.
  awaitable<void> learn(std::string first, std::string second, std::size_t count) {
    std::ofstream prompts(folder_ + "/prompts");
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < 40; ++k) prompts << "line " << i * 41 + k * k << " and ";
      prompts << "so on\n";
    }
    prompts.close();
    const base::Deadline deadline = long_after();
    Program program(folder_, "canary",
                    {"learn", "-q", "--model", "oracle", "--worker", first, "--worker", second,
                     "--prompts", folder_ + "/prompts", "--min-canaries", "4", "-o", canaries()},
                    false);
    std::optional<int> status;
    while (!(status = program.wait(base::Deadline::after(base::Duration(0))))) {
      if (deadline.expired()) fail("fo-canary learn does not end");
      co_await loop::pause_for(std::chrono::milliseconds(10));
    }
    if (*status != 0) fail("fo-canary learn: see " + program.log());
  }

  /// Calls `on_verdict` for each verdict in the registry, now and later, until it is abandoned.
  awaitable<void> follow_verdicts(std::function<void(const fleet::Verdict&)> on_verdict) {
    const std::function<void(const fleet::RegistryChange&)> on_change =
        [on_verdict = std::move(on_verdict)](const fleet::RegistryChange& change) {
          const bool is_verdict = change.kind == fleet::RegistryChange::Kind::kPut &&
                                  fleet::is_verdict_key(change.record.key);
          if (is_verdict) on_verdict(fleet::decode_verdict(change.record));
        };
    co_await registry_->watch("verdicts/", on_change);
  }

  /// Starts the canary.
  void watch(std::vector<std::string> options) {
    std::vector<std::string> argv{"run",        "--registry",       registry(),
                                  "--name",     "pipeline",         "--canaries",
                                  canaries(),   "--admin",          folder_ + "/canary/admin.sock",
                                  "--state",    folder_ + "/state", "--metrics",
                                  "127.0.0.1:0"};
    argv.insert(argv.end(), options.begin(), options.end());
    canary_.emplace(folder_, "canary", std::move(argv), true);
  }
  void stop() { canary_.reset(); }
  [[nodiscard]] Program& canary() { return *canary_; }
  awaitable<std::string> canary_metrics() {
    return get("http://127.0.0.1:" + canary_->ready() + "/metrics");
  }
  awaitable<nlohmann::json> canary_state() { return page("canary"); }
  /// The state of the canary or, where there is one, of the router.
  awaitable<nlohmann::json> page(std::string daemon) {
    const std::string text = co_await get("unix:" + folder_ + "/" + daemon + "/admin.sock:/state");
    co_return nlohmann::json::parse(text);
  }

  static awaitable<std::string> get(std::string url) {
    const http::FetchOptions options;
    http::Response answer =
        co_await http::async_fetch("GET", std::move(url), test::soon(), options);
    if (answer.status != 200) fail("the status is " + std::to_string(answer.status));
    co_return std::move(answer.body);
  }

 private:
  std::string folder_;
  std::unique_ptr<fleet::Registry> registry_;
  std::map<std::string, std::unique_ptr<fleet::RegisteredRecord>> kept_;
  std::optional<Program> canary_;
};

inline void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

/// A new folder below /tmp.
inline std::string make_folder() {
  std::string folder = "/tmp/fo-pipeline.XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) base::throw_errno(errno, "create a folder");
  return folder;
}

}  // namespace fo::pipeline
