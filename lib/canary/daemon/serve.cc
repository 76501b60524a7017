#include "canary/daemon/serve.h"

#include <poll.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "canary/daemon/gpu_errors.h"
#include "canary/daemon/metrics.h"
#include "canary/daemon/verdict_writer.h"
#include "canary/xid/xid_log.h"
#include "fleet/admin_socket.h"
#include "fleet/registry/follow.h"
#include "fleet/registry/registry.h"
#include "fleet/registry/uri.h"
#include "fleet/state_file.h"
#include "http/pages.h"
#include "http/server.h"
#include "loop/backoff.h"
#include "loop/daemon.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "os/log.h"
#include "os/log_limit.h"
#include "os/process/process.h"
#include "os/socket/server_socket.h"

namespace fo::canary {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;

constexpr base::Duration kFinishTimeout = std::chrono::seconds(2);
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
                  .on_verdict = [this](const std::string& id) { writer_.publish(id); }}),
        writer_(io_.get_executor(), *registry_, workers_, options.workers.writer, counts_),
        checker_(io_.get_executor(), options.checker, workers_,
                 [this](const std::string& id) { writer_.publish(id); }) {}

  int run();

 private:
  void on_removed(const WorkerPtr& worker) {
    checker_.on_removed(worker);
    // A conviction lasts as long as its record. Any other verdict would expire, so its record is
    // removed.
    if (!worker->health.is_convicted()) writer_.withdraw(worker->id);
  }
  awaitable<void> follow(std::string prefix);
  void on_xid(const Xid& xid, const std::string& host);
  awaitable<void> follow_xids(std::unique_ptr<XidLog> log, XidSource source);
  void load_state();
  void serve_pages();
  void stop(loop::Stop how);
  awaitable<void> finish();
  void end();

  const ServeOptions& options_;
  loop::Daemon& daemon_;
  asio::io_context io_{1};
  std::unique_ptr<fleet::Registry> registry_;
  os::LogLimit log_limit_;
  DaemonCounts counts_;
  Workers workers_;
  VerdictWriter writer_;
  Checker checker_;
  std::optional<os::ServerSocket> admin_socket_;
  std::optional<http::Server> admin_;
  std::optional<http::Server> metrics_;
  std::string ready_line_ = "\n";
};

awaitable<void> CanaryDaemon::follow(std::string prefix) {
  const auto on_change = [this, prefix](const fleet::RegistryChange& change) {
    workers_.apply(change, now());
    if (prefix != kVerdicts || change.kind != fleet::RegistryChange::Kind::kListed) return;
    workers_.on_verdicts_listed();
    writer_.start();
  };
  return fleet::follow(*registry_, prefix, on_change);
}

void CanaryDaemon::load_state() {
  fleet::load_state(options_.state, kMaxStateBytes, [this](const std::string& text) {
    workers_.load(parse_state(text, options_.state), now());
  });
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
      for (;;) {
        log->read();
        backoff.reset();
        const Deadline never = Deadline::never();
        co_await loop::until_ready(log->fd(), POLLIN, never);
      }
    } catch (const Error& error) {
      log_limit_.log(os::LogLevel::kWarning, source.path, error.what());
    }
    co_await loop::pause_for(backoff.next());
  }
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
  admin_.emplace(io_.get_executor(), http::make_handler(std::move(pages)), fleet::admin_limits());
  admin_->listen(std::move(admin_socket_->listener));
  if (options_.metrics.empty()) return;
  metrics_.emplace(
      io_.get_executor(),
      http::make_handler(http::daemon_pages([this] { return to_text(workers_, counts_); },
                                            [this] { return daemon_.is_ready(); })),
      http::limits_for_probes(kMaxPageClients));
  ready_line_ = std::to_string(metrics_->listen(options_.metrics)) + "\n";
}

// Only convictions must be written before the end, because all other verdicts expire. A conviction
// that is not written in time is lost, unless --state keeps it.
void CanaryDaemon::stop(loop::Stop how) {
  if (how == loop::Stop::kNow || !writer_.has_convictions()) return end();
  loop::spawn(io_, finish());
}

awaitable<void> CanaryDaemon::finish() {
  const Deadline deadline = Deadline::after(kFinishTimeout);
  co_await writer_.await_convictions(deadline);
  end();
}

void CanaryDaemon::end() {
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
  loop::spawn(io_, daemon_.run([this](loop::Stop how) { stop(how); }));
  if (!options_.state.empty()) {
    load_state();
    const auto state = [this] { return encode(workers_.save(now())); };
    const auto on_failure = [this] { counts_.state_failures.add(); };
    loop::spawn(io_, fleet::keep_state(options_.state, state, on_failure));
  }
  if (!options_.xid_logs.empty()) counts_.xids.emplace();
  for (const XidSource& source : options_.xid_logs) {
    auto log = std::make_unique<XidLog>(
        source.path, [this, host = source.host](const Xid& xid) { on_xid(xid, host); });
    loop::spawn(io_, follow_xids(std::move(log), source));
  }
  serve_pages();
  for (const char* const prefix : {kVerdicts, "instances/"}) {
    loop::spawn(io_, follow(prefix));
  }
  loop::spawn(io_, writer_.run());
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
