#include "canary/daemon/serve.h"

#include <poll.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "canary/daemon/gpu_errors.h"
#include "canary/daemon/metrics.h"
#include "canary/xid/xid_log.h"
#include "fleet/admin_socket.h"
#include "fleet/registry/registry.h"
#include "fleet/registry/uri.h"
#include "http/pages.h"
#include "http/server.h"
#include "loop/backoff.h"
#include "loop/blocking.h"
#include "loop/daemon.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "os/file.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/process.h"
#include "os/server_socket.h"

namespace fo::canary {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;

constexpr base::Duration kPutTimeout = std::chrono::seconds(5);
constexpr base::Duration kPutRetry = std::chrono::seconds(1);
constexpr base::Duration kSaveInterval = std::chrono::seconds(1);
constexpr std::size_t kMaxPageClients = 64;
constexpr char kVerdicts[] = "verdicts/";

class CanaryDaemon {
 public:
  CanaryDaemon(const ServeOptions& options, loop::Daemon& daemon)
      : options_(options),
        daemon_(daemon),
        registry_(fleet::make_registry(options.registry, options.state_registry)),
        workers_(options.workers, options.files,
                 {.on_new = [this](const WorkerPtr& worker) { checker_.watch(worker); },
                  .on_removed = [this](const WorkerPtr& worker) { on_removed(worker); },
                  .on_verdict = [this](const std::string& id) { publish(id); }}),
        checker_(io_.get_executor(), options.checker, workers_,
                 [this](const std::string& id) { publish(id); }) {}

  int run();

 private:
  void publish(const std::string& id) {
    (workers_.is_convicted(id) ? urgent_ : due_).insert(id);
    wake_.notify();
  }
  void on_removed(const WorkerPtr& worker) {
    checker_.on_removed(worker);
    // A conviction stays as long as its record. Any other verdict expires, and its record is
    // removed.
    if (!worker->health.is_convicted()) {
      gone_.insert(worker->id);
      wake_.notify();
    }
  }
  awaitable<void> follow(std::string prefix);
  awaitable<void> write_verdicts();
  awaitable<bool> write_verdict(std::string id);
  awaitable<void> keep_state();
  void on_xid(const Xid& xid, const std::string& host);
  std::unique_ptr<XidLog> open_xids(const XidSource& source);
  awaitable<void> follow_xids(std::unique_ptr<XidLog> log, XidSource source);
  void load_state();
  void serve_pages();
  void stop();

  const ServeOptions& options_;
  loop::Daemon& daemon_;
  asio::io_context io_{1};
  std::unique_ptr<fleet::Registry> registry_;
  /// Ids of workers whose verdicts are to be written; convictions are first.
  std::set<std::string> urgent_;
  std::set<std::string> due_;
  /// Ids of removed workers whose records are still to be deleted.
  std::set<std::string> gone_;
  loop::Event wake_{io_.get_executor()};
  os::LogLimit log_limit_;
  DaemonCounts counts_;
  Workers workers_;
  Checker checker_;
  std::optional<os::ServerSocket> admin_socket_;
  std::optional<http::Server> admin_;
  std::optional<http::Server> metrics_;
  std::string ready_line_ = "\n";
};

awaitable<void> CanaryDaemon::follow(std::string prefix) {
  loop::Backoff backoff(std::chrono::milliseconds(100), std::chrono::seconds(5));
  const std::function<void(const fleet::RegistryChange&)> on_change =
      [this, is_of_verdicts = prefix == kVerdicts](const fleet::RegistryChange& change) {
        workers_.apply(change, now());
        if (!is_of_verdicts || change.kind != fleet::RegistryChange::Kind::kListed) return;
        workers_.on_verdicts_listed();
        wake_.notify();
      };
  for (;;) {
    try {
      co_await registry_->watch(prefix, on_change);
    } catch (const Error& error) {
      log_limit_.log(os::LogLevel::kWarning, "watch",
                     std::string("registry: ") + error.what() + "; trying again");
    }
    co_await loop::pause_for(backoff.next());
  }
}

// False if the registry did not accept it.
awaitable<bool> CanaryDaemon::write_verdict(std::string id) {
  const std::optional<fleet::Record> record = workers_.verdict_of(id, now());
  if (!record) co_return true;
  try {
    const Deadline deadline = Deadline::after(kPutTimeout);
    co_await registry_->put(*record, deadline);
    counts_.verdicts_written.add();
    if (!std::exchange(counts_.registry_is_up, true)) {
      os::log(os::LogLevel::kInfo, "registry: accepts verdicts again");
    }
    co_return true;
  } catch (const Error& error) {
    counts_.verdicts_failed.add();
    counts_.registry_is_up = false;
    log_limit_.log(os::LogLevel::kWarning, "put", std::string("write a verdict: ") + error.what());
  }
  co_return false;
}

awaitable<void> CanaryDaemon::write_verdicts() {
  for (;;) {
    const bool is_idle = urgent_.empty() && due_.empty() && gone_.empty();
    if (is_idle || !workers_.are_verdicts_listed()) {
      co_await wake_.wait();
      continue;
    }
    if (urgent_.empty() && due_.empty()) {
      const std::string id = *gone_.begin();
      gone_.erase(gone_.begin());
      if (workers_.all().contains(id)) continue;
      try {
        const Deadline deadline = Deadline::after(kPutTimeout);
        std::string key = fleet::verdict_key(id, options_.workers.writer);
        co_await registry_->remove(std::move(key), deadline);
      } catch (const Error& error) {
        // It expires.
        log_limit_.log(os::LogLevel::kWarning, "remove",
                       std::string("remove a verdict: ") + error.what());
      }
      continue;
    }
    std::set<std::string>& ids = urgent_.empty() ? due_ : urgent_;
    const std::string id = *ids.begin();
    ids.erase(ids.begin());
    const bool is_written = co_await write_verdict(id);
    if (is_written) continue;
    publish(id);
    co_await loop::pause_for(kPutRetry);
  }
}

void CanaryDaemon::load_state() {
  if (options_.state.empty()) return;
  try {
    workers_.load(parse_state(os::read_file(options_.state, kMaxStateBytes), options_.state),
                  now());
  } catch (const Error& error) {
    if (error.status() == base::ExitStatus::kNoInput) return;
    os::log(os::LogLevel::kWarning, "state file: {}; starting without it", error.what());
  }
}

awaitable<void> CanaryDaemon::keep_state() {
  std::string written;
  bool has_failed = false;
  for (;;) {
    co_await loop::pause_for(kSaveInterval);
    std::string text = encode(workers_.save(now()));
    if (text == written) continue;
    try {
      const std::function<bool()> write = [&text, this] {
        os::write_file_atomic(options_.state, text, 0600);
        return true;
      };
      co_await loop::run_blocking(write);
      written = std::move(text);
      if (std::exchange(has_failed, false)) {
        os::log(os::LogLevel::kInfo, "state file {}: is written again",
                base::quoted(options_.state));
      }
    } catch (const Error& error) {
      counts_.state_failures.add();
      if (!std::exchange(has_failed, true)) os::log(os::LogLevel::kWarning, "{}", error.what());
    }
  }
}

void CanaryDaemon::on_xid(const Xid& xid, const std::string& host) {
  ++(*counts_.xids)[class_of(xid)];
  const std::size_t concerned = find_xid(workers_, xid, host, now());
  log_limit_.log(os::LogLevel::kWarning, host + " " + xid.bus_id,
                 "host " + base::quoted(host) + ": " + describe(xid) + " (" +
                     std::string(to_string(class_of(xid))) +
                     "); workers on it: " + std::to_string(concerned));
}

awaitable<void> CanaryDaemon::follow_xids(std::unique_ptr<XidLog> log, XidSource source) {
  loop::Backoff backoff(std::chrono::milliseconds(100), std::chrono::seconds(5));
  for (;;) {
    try {
      if (log == nullptr) log = open_xids(source);
      for (;;) {
        log->read();
        const Deadline never = Deadline::never();
        co_await loop::until_ready(log->fd(), POLLIN, never);
      }
    } catch (const Error& error) {
      log_limit_.log(os::LogLevel::kWarning, source.path, error.what());
      log.reset();
    }
    co_await loop::pause_for(backoff.next());
  }
}

std::unique_ptr<XidLog> CanaryDaemon::open_xids(const XidSource& source) {
  return std::make_unique<XidLog>(
      source.path, [this, host = source.host](const Xid& xid) { on_xid(xid, host); });
}

awaitable<void> answer_state(const http::Request& request, http::Reply& reply,
                             const Workers& workers) {
  const std::string id(request.parameter("id").value_or(""));
  const std::string text = state_json(workers, id);
  reply.answer(text.empty() ? http::error_response(404, "worker " + base::quoted(id) + ": unknown")
                            : http::Response{200, "application/json", text, {}});
  co_return;
}

void CanaryDaemon::serve_pages() {
  fleet::prepare_admin_folder(options_.admin);
  admin_socket_.emplace(os::open_server_socket(options_.admin));
  std::vector<http::Page> pages;
  pages.push_back({"GET", "/state", [this](const http::Request& request, http::Reply& reply) {
                     return answer_state(request, reply, workers_);
                   }});
  admin_.emplace(io_.get_executor(), http::make_handler(std::move(pages)),
                 http::limits_for_probes(kMaxPageClients));
  admin_->listen(std::move(admin_socket_->listener));
  if (options_.metrics.empty()) return;
  metrics_.emplace(
      io_.get_executor(),
      http::make_handler(http::daemon_pages([this] { return to_text(workers_, counts_); },
                                            [this] { return daemon_.is_ready(); })),
      http::limits_for_probes(kMaxPageClients));
  ready_line_ = std::to_string(metrics_->listen(options_.metrics)) + "\n";
}

// Nothing is under way that must be finished: verdicts expire, and convictions are written.
void CanaryDaemon::stop() {
  if (!options_.state.empty()) {
    try {
      os::write_file_atomic(options_.state, encode(workers_.save(now())), 0600);
    } catch (const Error& error) {
      os::log(os::LogLevel::kWarning, "{}", error.what());
    }
  }
  io_.stop();
}

int CanaryDaemon::run() {
  asio::co_spawn(io_, daemon_.run([this](loop::Stop) { stop(); }), asio::detached);
  load_state();
  if (!options_.xid_logs.empty()) counts_.xids.emplace();
  for (const XidSource& source : options_.xid_logs) {
    std::unique_ptr<XidLog> log = open_xids(source);
    asio::co_spawn(io_, follow_xids(std::move(log), source), asio::detached);
  }
  serve_pages();
  for (const char* const prefix : {kVerdicts, "instances/"}) {
    asio::co_spawn(io_, follow(prefix), asio::detached);
  }
  asio::co_spawn(io_, write_verdicts(), asio::detached);
  if (!options_.state.empty()) asio::co_spawn(io_, keep_state(), asio::detached);
  daemon_.ready(ready_line_);
  io_.run();
  return base::to_int(base::ExitStatus::kOk);
}

}  // namespace

int serve(const ServeOptions& options) {
  loop::Daemon daemon(options.ready_fd);
  os::raise_fd_limit();
  return CanaryDaemon(options, daemon).run();
}

}  // namespace fo::canary
