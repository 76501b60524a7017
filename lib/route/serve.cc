#include "route/serve.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"
#include "fleet/registry/uri.h"
#include "http/pages.h"
#include "loop/daemon.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/log.h"
#include "os/process.h"
#include "os/server_socket.h"
#include "route/admin.h"

namespace fo::route {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;

class Server {
 public:
  Server(const ServeOptions& options, loop::Daemon& daemon)
      : options_(options),
        daemon_(daemon),
        monitor_(
            io_.get_executor(), monitor_options(options),
            [this](const WorkerPtr& worker) { on_change(worker); },
            [this](const WorkerPtr& worker) { on_ended(worker); }),
        router_(io_.get_executor(), router_options()),
        source_(options.source, router_.workers(), source_events()),
        public_(
            io_.get_executor(),
            [this](const http::Request& from, http::Reply& reply) { return handle(from, reply); },
            options.limits),
        stopped_(io_.get_executor()) {}

  int run();

 private:
  static WorkerMonitor::Options monitor_options(const ServeOptions& options) {
    WorkerMonitor::Options monitor = options.monitor;
    monitor.headers = options.router.worker_headers;
    return monitor;
  }

  RouterOptions router_options() {
    RouterOptions router = options_.router;
    router.on_refused = [this](const WorkerPtr& worker) { monitor_.on_refused(worker); };
    return router;
  }

  RegistrySource::Events source_events() {
    return {.on_new = [this](const WorkerPtr& worker) { monitor_.watch(worker); },
            .on_change = [this](const WorkerPtr&) { router_.on_change(); },
            .on_removed = [this](const WorkerPtr& worker) { monitor_.on_removed(worker); }};
  }

  awaitable<void> handle(const http::Request& from, http::Reply& reply) {
    const bool is_probe = from.path == "/live" || from.path == "/ready";
    return is_probe ? probes_(from, reply) : router_.handle(from, reply);
  }

  void on_change(const WorkerPtr& worker) {
    if (worker->is_removed) return;
    router_.workers().regroup(worker);
    router_.on_change();
  }

  void on_ended(const WorkerPtr& worker) {
    router_.workers().remove(worker->id);
    router_.on_change();
  }

  AdminActions admin_actions();
  void open_admin();
  void open_metrics();
  bool set_drained(const std::string& id, bool is_drained);
  void add_named_workers();
  void listen();
  awaitable<void> end();

  const ServeOptions& options_;
  loop::Daemon& daemon_;
  asio::io_context io_{1};
  WorkerMonitor monitor_;
  Router router_;
  RegistrySource source_;
  std::unique_ptr<fleet::Registry> registry_;
  const http::Handler probes_ =
      http::make_handler(http::probe_pages([this] { return daemon_.is_ready(); }));
  http::Server public_;
  std::optional<http::Server> admin_;
  std::optional<http::Server> metrics_;
  std::optional<os::ServerSocket> admin_socket_;
  std::string ready_line_ = "\n";
  loop::Event stopped_;
  bool is_stopping_now_ = false;
  bool was_whole_ = true;
};

void Server::add_named_workers() {
  for (const NamedWorker& named : options_.workers) {
    const net::Url url = net::parse_url(named.url);
    const std::string& id = named.name.empty() ? named.url : named.name;
    if (router_.workers().find(id)) {
      throw Error(ExitStatus::kUsage, "worker " + base::quoted(id) + ": appears twice");
    }
    const auto worker = std::make_shared<Worker>(id, fleet::Health(options_.source.health));
    worker->name = id;
    worker->url = named.url;
    worker->origin = http::make_origin(url, options_.source.tls);
    if (url.target != "/") worker->base_path = url.target;
    worker->slots = options_.source.slots;
    router_.workers().add(worker);
    monitor_.watch(worker);
  }
}

bool Server::set_drained(const std::string& id, bool is_drained) {
  const WorkerPtr worker = router_.workers().find(id);
  if (!worker) return false;
  worker->is_drained = is_drained;
  router_.on_change();
  return true;
}

AdminActions Server::admin_actions() {
  return {.state = [this] { return router_.state(); },
          .requests = [this] { return router_.requests(); },
          .drain = [this](const std::string& id, bool drain) { return set_drained(id, drain); },
          .weight = [this](const std::string& model, const std::string& card,
                           double weight) { return router_.set_weight(model, card, weight); },
          .level = [this](std::optional<std::size_t> level) { router_.pin_level(level); },
          .kill = [this](const std::string& id) { return router_.kill(id); },
          .reload = [] {}};
}

void Server::open_admin() {
  prepare_admin_folder(options_.admin);
  admin_socket_.emplace(os::open_server_socket(options_.admin));
  admin_.emplace(io_.get_executor(), http::make_handler(admin_pages(admin_actions())),
                 http::limits_for_probes(64));
  admin_->listen(std::move(admin_socket_->listener));
}

void Server::open_metrics() {
  if (options_.metrics.empty()) return;
  metrics_.emplace(io_.get_executor(),
                   http::make_handler(http::daemon_pages([this] { return router_.metrics_text(); },
                                                         [this] { return daemon_.is_ready(); })),
                   http::limits_for_probes(64));
  metrics_->listen(options_.metrics);
}

void Server::listen() {
  for (const std::string& address : options_.listen) {
    const bool has_tls = !options_.tls.certificate.empty();
    const std::uint16_t port =
        has_tls ? public_.listen(address, options_.tls) : public_.listen(address);
    const std::string bound = net::to_string({net::parse_address(address).host, port});
    os::log(os::LogLevel::kInfo, "listening on {}", bound);
    if (ready_line_ == "\n") ready_line_ = bound + "\n";
  }
}

awaitable<void> Server::end() {
  co_await loop::pause_for(options_.lame_duck);
  was_whole_ = co_await public_.stop(Deadline::after(options_.drain));
  io_.stop();
}

int Server::run() {
  const auto stop = [this](loop::Stop how) {
    if (how == loop::Stop::kNow) {
      was_whole_ = public_.connections() == 0;
      io_.stop();
      return;
    }
    asio::co_spawn(io_, end(), asio::detached);
  };
  asio::co_spawn(io_, daemon_.run(stop), asio::detached);
  asio::co_spawn(io_, router_.keep_time(), asio::detached);
  add_named_workers();
  if (!options_.registry.empty()) {
    registry_ = fleet::make_registry(options_.registry);
    for (const std::string_view prefix : RegistrySource::kPrefixes) {
      asio::co_spawn(io_, source_.follow(*registry_, std::string(prefix)), asio::detached);
    }
  }
  open_admin();
  open_metrics();
  listen();
  daemon_.ready(ready_line_);
  io_.run();
  return base::to_int(was_whole_ ? ExitStatus::kOk : ExitStatus::kTryAgain);
}

}  // namespace

NamedWorker parse_worker(const std::string& text) {
  NamedWorker worker;
  const std::size_t equals = text.find('=');
  const std::size_t scheme = text.find(':');
  const bool has_name = equals != text.npos && equals < scheme;
  if (has_name) worker.name = text.substr(0, equals);
  worker.url = has_name ? text.substr(equals + 1) : text;
  if (has_name && worker.name.empty()) {
    throw Error(ExitStatus::kUsage, "worker " + base::quoted(text) + ": the name is empty");
  }
  static_cast<void>(net::parse_url(worker.url));
  return worker;
}

int serve(const ServeOptions& options) {
  loop::Daemon daemon(options.ready_fd);
  os::raise_fd_limit();
  return Server(options, daemon).run();
}

}  // namespace fo::route
