#include "route/serve.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "fleet/admin_socket.h"
#include "http/pages.h"
#include "loop/daemon.h"
#include "loop/event.h"
#include "loop/pause.h"
#include "loop/spawn.h"
#include "net/address.h"
#include "net/tls.h"
#include "os/log.h"
#include "os/process/process.h"
#include "route/admin.h"
#include "route/listeners.h"
#include "route/settings.h"
#include "route/worker/router_record.h"

namespace fo::route {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::Error;
using base::ExitStatus;

// Time for which the next router waits for the running one, and for the first checks of its
// workers.
constexpr base::Duration kTakeoverTimeout = std::chrono::seconds(60);
constexpr base::Duration kFirstChecks = std::chrono::seconds(5);
// Time limit for the running router to report the settings of its operator.
constexpr base::Duration kSettingsTimeout = std::chrono::seconds(2);
// Time limit for the client that was accepted last to send its request.
constexpr base::Duration kFirstRequest = std::chrono::seconds(1);
// Time limit for a weight to be written to the registry.
constexpr base::Duration kRegistryTimeout = std::chrono::seconds(5);
// The timeout of the admin socket's and the metrics' last answers.
constexpr base::Duration kProbeTime = std::chrono::seconds(5);

// Returns the number of clients for this limit of open files. A request needs two of them: one for
// its client, one for its worker. Idle clients beyond the limit make room for others.
std::size_t max_clients(std::size_t files) {
  constexpr std::size_t kOtherFiles = 256;
  constexpr std::size_t kMaxClients = std::size_t{16} * 1024;
  return std::clamp<std::size_t>((files - std::min(files / 4, kOtherFiles)) / 2, 1, kMaxClients);
}

// Throws for an option that a running process keeps, if `next` has another value.
void check_kept(const ServeOptions& now, const ServeOptions& next) {
  const auto check = [](bool is_same, const char* option) {
    if (is_same) return;
    throw Error(
        ExitStatus::kConfig,
        std::string(option) + ": a reload can't change it; start a second router with --takeover");
  };
  check(next.listen == now.listen, "--listen");
  check(next.tls.certificate == now.tls.certificate, "--tls-cert");
  check(next.tls.key == now.tls.key, "--tls-key");
  check(next.registry == now.registry, "--registry");
  check(next.state_registry == now.state_registry, "--state-registry");
  check(next.state == now.state, "--state");
  check(next.admin == now.admin, "--admin");
  check(next.metrics == now.metrics, "--metrics");
  check(next.router.metrics_groups == now.router.metrics_groups, "--metrics-groups");
}

// The workers of --worker, checked.
struct NamedWorkers {
  std::set<std::string> ids;
  /// Those of them that are new.
  std::vector<WorkerPtr> added;
};

class Server {
 public:
  Server(ServeOptions options, loop::Daemon& daemon)
      : options_(std::move(options)),
        daemon_(daemon),
        monitor_(
            io_.get_executor(), monitor_options(options_),
            [this](const WorkerPtr& worker) { on_change(worker); },
            [this](const WorkerPtr& worker) { on_ended(worker); }),
        router_(io_.get_executor(), router_options()),
        source_(options_.source, router_.workers(), source_events()),
        public_(
            io_.get_executor(),
            [this](const http::Request& from, http::Reply& reply) { return handle(from, reply); },
            options_.limits,
            [this](const http::EarlyError& error) { return router_.answer_early(error); },
            [this](const http::Request& from) {
              return is_probe(from) ? std::nullopt : router_.check_head(from);
            }),
        hold_(io_.get_executor()),
        listeners_(io_.get_executor(), options_.admin) {}

  int run();

 private:
  static WorkerMonitor::Options monitor_options(const ServeOptions& options) {
    WorkerMonitor::Options monitor = options.monitor;
    monitor.headers = options.router.worker_headers;
    return monitor;
  }

  RouterOptions router_options() {
    RouterOptions router = options_.router;
    router.resume.drain = options_.drain;
    router.on_refused = [this](const WorkerPtr& worker, const std::string& reason) {
      monitor_.on_refused(worker, reason);
    };
    router.on_fault = [this](const WorkerPtr& worker) { monitor_.on_fault(worker); };
    return router;
  }

  RegistrySource::Events source_events() {
    return {.on_new = [this](const WorkerPtr& worker) { on_new(worker); },
            .on_change = [this] { note_change(); },
            .on_removed = [this](const WorkerPtr& worker) { on_removed(worker); }};
  }

  static bool is_probe(const http::Request& from) {
    return from.path == "/live" || from.path == "/ready";
  }
  awaitable<void> handle(const http::Request& from, http::Reply& reply) {
    return is_probe(from) ? probes_(from, reply) : router_.handle(from, reply);
  }

  void on_new(const WorkerPtr& worker) {
    control_.on_new(worker);
    monitor_.watch(worker);
  }

  void on_removed(const WorkerPtr& worker) {
    control_.on_removed(worker);
    monitor_.on_removed(worker);
    changed_.notify();
  }

  void note_change() {
    router_.on_change();
    changed_.notify();
  }

  void on_change(const WorkerPtr& worker) {
    if (worker->is_removed) return;
    router_.workers().regroup(worker);
    note_change();
  }

  void on_ended(const WorkerPtr& worker) { source_.remove(worker->id); }

  awaitable<bool> set_weight(std::string model, std::string card, double weight);
  AdminActions admin_actions();
  void serve_admin();
  void serve_metrics(base::UniqueFd listener);
  [[nodiscard]] NamedWorkers check_named_workers(const ServeOptions& options);
  void set_named_workers(NamedWorkers named);
  void reload();
  void on_hangup();
  void listen();
  awaitable<void> start();
  awaitable<void> until_workers_are_known();
  awaitable<HeldSettings> receive_settings();
  awaitable<void> offer_listeners();
  void stop(loop::Stop how);
  awaitable<void> end();

  /// reload() assigns to this object.
  ServeOptions options_;
  loop::Daemon& daemon_;
  asio::io_context io_{1};
  /// Notified when workers or what is known of them have changed.
  loop::Event changed_{io_.get_executor()};
  WorkerMonitor monitor_;
  Router router_;
  OperatorControl control_{router_};
  RegistrySource source_;
  std::unique_ptr<fleet::Registry> registry_;
  const http::Handler probes_ =
      http::make_handler(http::probe_pages([this] { return daemon_.is_ready(); }));
  std::optional<RouterRecord> record_;
  /// The ids of the workers that have no record.
  std::set<std::string> named_;
  http::Server public_;
  SettingsHold hold_;
  std::optional<http::Server> admin_;
  std::optional<http::Server> metrics_;
  Listeners listeners_;
  std::string ready_line_ = "\n";
  bool accepts_clients_ = false;
  bool has_successor_ = false;
  bool was_whole_ = true;
};

// An invalid list, or an unusable file for the TLS of workers, changes nothing.
NamedWorkers Server::check_named_workers(const ServeOptions& options) {
  // Only connections read these files, but an unusable one is to be noticed here.
  if (options.source.tls) net::make_tls_client(*options.source.tls);
  NamedWorkers checked;
  for (const NamedWorker& named : options.workers) {
    const net::Url url = net::parse_url(named.url);
    const std::string& id = named.name.empty() ? named.url : named.name;
    const WorkerPtr present = router_.workers().find(id);
    const bool is_new = checked.ids.insert(id).second && (!present || named_.contains(id));
    if (!is_new) throw Error(ExitStatus::kUsage, "worker " + base::quoted(id) + ": appears twice");
    if (present && present->url != named.url) {
      throw Error(ExitStatus::kUsage,
                  "worker " + base::quoted(id) +
                      ": a reload can't change its URL; give the new URL another name");
    }
    const auto worker = std::make_shared<Worker>(id, fleet::Health(options.source.health));
    worker->name = id;
    worker->reports_model = true;
    worker->set_url(named.url, url, options.source.tls);
    if (!present) checked.added.push_back(worker);
  }
  return checked;
}

void Server::set_named_workers(NamedWorkers named) {
  for (const std::string& id : named_) {
    if (!named.ids.contains(id)) source_.remove(id);
  }
  for (const std::string& id : named.ids) {
    if (const WorkerPtr present = router_.workers().find(id)) {
      present->set_url(present->url, net::parse_url(present->url), options_.source.tls);
    }
  }
  for (const WorkerPtr& worker : named.added) {
    // The registry may have a worker with this id, which only the new options allow.
    if (!router_.workers().find(worker->id)) source_.add(worker);
  }
  named_ = std::move(named.ids);
  router_.on_change();
}

// The calls that may throw come first. The later ones change objects that requests in flight refer
// to, and replace none of them.
void Server::reload() {
  if (!options_.reload) throw Error(ExitStatus::kConfig, "reload: nothing to read again");
  ServeOptions options = options_.reload();
  check_kept(options_, options);
  NamedWorkers named = check_named_workers(options);
  options.reload = options_.reload;
  options.limits.connections = options_.limits.connections;
  options.router.pool = options_.router.pool;
  options_ = std::move(options);
  router_.set_options(router_options());
  monitor_.set_options(monitor_options(options_));
  public_.set_limits(options_.limits);
  source_.set_options(options_.source);
  set_named_workers(std::move(named));
  if (options_.set_log) options_.set_log();
  os::log(os::LogLevel::kInfo, "configuration: reloaded");
}

void Server::on_hangup() {
  try {
    reload();
  } catch (const Error& error) {
    os::log(os::LogLevel::kError, "configuration: not reloaded: {}", error.what());
  }
}

// With a registry, other routers and the next start of this one have the same weights.
awaitable<bool> Server::set_weight(std::string model, std::string card, double weight) {
  std::optional<CardWeights> weights = router_.weights_with(model, card, weight);
  if (!weights) co_return false;
  if (!registry_) {
    control_.set_weights(model, *std::move(weights));
    co_return true;
  }
  const auto in_force = [this, &model] {
    const auto& all = router_.workers().weights();
    const auto found = all.find(model);
    return found == all.end() ? CardWeights() : found->second;
  };
  const CardWeights before = in_force();
  const Deadline deadline = Deadline::after(kRegistryTimeout);
  weights =
      co_await write_weight(*registry_, model, std::move(card), *std::move(weights), deadline);
  // Otherwise the registry has reported this record, or a later one.
  if (in_force() == before) router_.workers().set_weights(model, std::move(weights));
  router_.on_change();
  co_return true;
}

AdminActions Server::admin_actions() {
  return {.state = [this] { return router_.state(); },
          .requests = [this] { return router_.requests(); },
          .drain = [this](const std::string& id,
                          bool drain) { return control_.set_drained(id, drain); },
          .weight =
              [this](std::string model, std::string card, double weight) {
                return set_weight(std::move(model), std::move(card), weight);
              },
          .level = [this](std::optional<std::size_t> level) { control_.set_level(level); },
          .kill = [this](const std::string& id) { return router_.kill(id); },
          .reload = [this] { reload(); },
          .settings = [this] { return to_json(control_.settings()); }};
}

void Server::serve_admin() {
  admin_.emplace(io_.get_executor(), http::make_handler(admin_pages(admin_actions(), hold_)),
                 fleet::admin_limits());
  admin_->listen(listeners_.admin());
}

void Server::serve_metrics(base::UniqueFd listener) {
  metrics_.emplace(io_.get_executor(),
                   http::make_handler(http::daemon_pages([this] { return router_.metrics_text(); },
                                                         [this] { return daemon_.is_ready(); })),
                   http::limits_for_probes(64));
  metrics_->listen(std::move(listener));
}

void Server::listen() {
  std::vector<http::Listener> opened;
  for (const std::string& address : options_.listen) opened.push_back(listeners_.tcp(address));
  // No address can fail any more, so clients are accepted from here on.
  for (std::size_t i = 0; i < opened.size(); ++i) {
    const bool has_tls = !options_.tls.certificate.empty();
    has_tls ? public_.listen(std::move(opened[i].fd), options_.tls)
            : public_.listen(std::move(opened[i].fd));
    const std::string host = net::parse_address(options_.listen[i]).host;
    const std::string bound = net::to_string({host, opened[i].port});
    os::log(os::LogLevel::kInfo, "listening on {}", bound);
    if (i == 0) ready_line_ = bound + "\n";
  }
  accepts_clients_ = true;
}

awaitable<void> Server::start() {
  fleet::prepare_admin_folder(options_.admin);
  const Deadline deadline = Deadline::after(kTakeoverTimeout);
  if (options_.takeover) {
    co_await listeners_.take_over(deadline);
  } else {
    listeners_.open();
  }
  HeldSettings held;
  if (listeners_.has_received()) {
    co_await until_workers_are_known();
    held = co_await receive_settings();
  }
  http::Listener metrics;
  if (!options_.metrics.empty()) metrics = listeners_.tcp(options_.metrics);
  listen();
  if (metrics.fd) serve_metrics(std::move(metrics.fd));
  co_await listeners_.own();
  serve_admin();
  daemon_.ready(ready_line_);
  // The other router ends the answer when it knows of the hand-over, and changes nothing after it.
  if (held.connection) co_await held.connection->finish(Deadline::after(kSettingsTimeout));
  held = {};
  co_await offer_listeners();
}

// The running router knows its workers, so its clients must not find that a model is not served
// here.
awaitable<void> Server::until_workers_are_known() {
  const Deadline deadline = Deadline::after(kFirstChecks);
  const auto is_checked = [](const auto& entry) {
    return entry.second->is_known || entry.second->unreachable_since;
  };
  for (;;) {
    const auto& all = router_.workers().all();
    const bool is_listed = options_.registry.empty() || source_.is_listed();
    if (is_listed && std::all_of(all.begin(), all.end(), is_checked)) co_return;
    if (deadline.expired()) co_return;
    co_await changed_.wait(deadline);
  }
}

// The running router answers at the admin socket as long as we do not own the sockets.
awaitable<HeldSettings> Server::receive_settings() {
  HeldSettings held;
  try {
    held = co_await hold_settings(options_.admin, Deadline::after(kSettingsTimeout));
    control_.set_all(read_settings(held.text));
  } catch (const Error& error) {
    os::log(os::LogLevel::kWarning,
            "settings of the running router (drained workers, weights, level, responses, poison "
            "requests): not taken over: {}",
            error.what());
  }
  co_return held;
}

awaitable<void> Server::offer_listeners() {
  try {
    co_await listeners_.offer();
    has_successor_ = true;
  } catch (const Error& error) {
    os::log(os::LogLevel::kError, "no other router can take over: {}", error.what());
  }
  if (!has_successor_) co_return;
  os::log(os::LogLevel::kInfo, "another router has taken over; requests in flight may finish");
  hold_.hand_over();
  // A change on a connection that was accepted last is refused, and tried again at the next router.
  loop::spawn(io_, loop::without_result(
                       admin_->stop(Deadline::after(kProbeTime), Deadline::after(kFirstRequest))));
  if (metrics_) {
    loop::spawn(io_, loop::without_result(metrics_->stop(Deadline::after(kProbeTime))));
  }
  if (daemon_.is_stopping()) co_return;
  daemon_.begin_stop();
  co_await end();
}

void Server::stop(loop::Stop how) {
  if (how == loop::Stop::kNow || !accepts_clients_) {
    was_whole_ = !public_.is_busy();
    io_.stop();
    return;
  }
  loop::spawn(io_, end());
}

awaitable<void> Server::end() {
  const Deadline deadline = Deadline::after(options_.lame_duck + options_.drain);
  Deadline idle_until = Deadline::after(options_.lame_duck);
  public_.close_after_answers();
  if (!has_successor_) {
    co_await loop::pause_for(options_.lame_duck);
    idle_until = Deadline::after(kFirstRequest);
  }
  listeners_.withdraw_tcp(options_.metrics);
  was_whole_ = co_await public_.stop(deadline, idle_until);
  if (record_) co_await record_->deregister();
  io_.stop();
}

int Server::run() {
  std::function<void()> on_reload;
  if (options_.reload) on_reload = [this] { on_hangup(); };
  const auto on_stop = [this](loop::Stop how) { stop(how); };
  loop::spawn(io_, daemon_.run(on_stop, std::move(on_reload)));
  loop::spawn(io_, router_.run_periodic_tasks());
  set_named_workers(check_named_workers(options_));
  if (!options_.registry.empty()) {
    registry_ = fleet::make_registry(options_.registry, options_.state_registry);
    if (!options_.state.empty()) {
      source_.load_file(options_.state);
      loop::spawn(io_, source_.save_periodically(options_.state));
    }
    loop::spawn(io_, source_.run_periodic_tasks());
    record_.emplace(*registry_, options_.admin);
    loop::spawn(io_, record_->maintain());
    for (const std::string_view prefix : RegistrySource::kPrefixes) {
      loop::spawn(io_, source_.follow(*registry_, std::string(prefix)));
    }
  }
  std::exception_ptr failure;
  loop::spawn(io_, start(), [&](std::exception_ptr error) {
    failure = std::move(error);
    if (failure) io_.stop();
  });
  io_.run();
  if (failure) std::rethrow_exception(failure);
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

int serve(const ServeOptions& given) {
  loop::Daemon daemon(given.ready_fd);
  ServeOptions options = given;
  options.limits.connections = max_clients(os::raise_fd_limit());
  options.router.pool.connections = options.limits.connections;
  return Server(std::move(options), daemon).run();
}

}  // namespace fo::route
