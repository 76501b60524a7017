#include "gms/bundle.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/crash_history.h"
#include "gms/endpoint.h"
#include "gms/metrics_server.h"
#include "gms/server.h"
#include "gms/server_counters.h"
#include "gms/vault.h"
#include "os/file.h"
#include "os/log.h"
#include "os/process.h"
#include "os/signals.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;
using os::LogLevel;
using os::OwnedPath;

// What a server gets to let its clients go, before it is killed.
constexpr base::Duration kGrace = std::chrono::seconds(5);
// Descriptors of the parent that no vault may take, and so many more for each server.
constexpr std::size_t kReserve = 64;
constexpr std::size_t kReservePerServer = 16;

OwnedPath make_ready_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) {
    throw_errno(errno, ExitStatus::kCannotCreate, "make ready file " + base::quoted(path));
  }
  return OwnedPath(path);
}

// The snapshot of one device.
std::string snapshot_of(const std::string& dir, int device, bool is_only_one) {
  std::string own = dir + "/device-" + std::to_string(device);
  std::error_code unknown;
  return is_only_one && !std::filesystem::is_directory(own, unknown) ? dir : own;
}

// The program beside this one, else the one in PATH.
std::string find_loader() {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string beside = self.parent_path() / "gms-load";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : "gms-load";
}

struct Server {
  Server(Place where, VaultRoom& room) : place(std::move(where)), vault(room) {}

  [[nodiscard]] std::string name() const {
    return "device=" + std::to_string(place.device.value()) + " tag=" + place.tag;
  }

  Place place;
  CounterPage counters = CounterPage::create();
  Vault vault;
  CrashHistory crashes;
  std::optional<os::Child> child;
  /// Gets a byte once the child answers.
  UniqueFd ready;
  /// When to start it again.
  std::optional<Deadline> start_at;
  /// Has answered, and has been given the snapshot that was asked for, at least once.
  bool is_up = false;
  std::optional<os::Child> loader;
};

class Bundle {
 public:
  Bundle(const BundleConfig& config, std::vector<Place> places, UniqueFd signals, UniqueFd metrics)
      : config_(config),
        signals_(std::move(signals)),
        metrics_(std::move(metrics)),
        ready_fd_(config.ready_fd) {
    const std::size_t reserve = kReserve + kReservePerServer * places.size();
    room_.limit = config.fd_limit > reserve ? config.fd_limit - reserve : 0;
    for (Place& place : places) {
      servers_.push_back(std::make_unique<Server>(std::move(place), room_));
    }
  }

  int run() {
    try {
      if (metrics_) start_metrics();
      for (const auto& server : servers_) start(*server);
      const std::optional<int> first = wait();
      stop();
      return first.value_or(0);
    } catch (...) {
      stop();  // whoever starts the next one must find the sockets free
      throw;
    }
  }

 private:
  void start(Server& server) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(errno, "create a pipe");
    server.ready.reset(ends[0]);
    UniqueFd ready(ends[1]);
    UniqueFd vault;
    if (config_.on_crash == OnCrash::kRestart) vault = server.vault.open();
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    server.child.emplace(os::fork_child(
        [&] { return run_child(server, std::move(ready), std::move(vault)); }, options));
    server.start_at.reset();
  }

  void start_metrics() {
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    metrics_child_.emplace(os::fork_child(
        [this] {
          const UniqueFd stop = os::open_signal_fd(os::signal_set({SIGTERM}));
          std::vector<MeteredServer> metered;
          for (const auto& server : servers_) {
            metered.push_back({server->place.device.value(), server->place.uuid, server->place.tag,
                               &*server->counters});
          }
          UniqueFd listener = std::move(metrics_);
          let_go_of_siblings();
          run_metrics_server(std::move(listener), metered, stop.get());
          return 0;
        },
        options));
  }

  // In the child.
  int run_child(Server& server, UniqueFd ready, UniqueFd vault) {
    // A terminal's SIGINT and SIGHUP go to all of us; the parent turns them into our SIGTERM.
    const UniqueFd stop = os::open_signal_fd(os::signal_set({SIGTERM}));
    ServerConfig config;
    config.listener = std::move(server.place.socket.listener);
    config.deposit = server.vault.take();
    let_go_of_siblings();
    config.vault = std::move(vault);
    config.driver = cuda::Driver::open(config_.driver);
    config.device = cuda::device_info(*config.driver, server.place.device);
    config.tag = server.place.tag;
    config.stop_fd = stop.get();
    config.counters = &*server.counters;
    config.alloc_retry_interval = config_.alloc_retry_interval;
    config.alloc_retry_timeout = config_.alloc_retry_timeout;
    config.access = config_.access;
    config.max_connections = config_.max_connections;
    config.max_unread_fds = config_.max_unread_fds;
    run_server(std::move(config), [&] {
      os::write_all(ready.get(), ".", "report being ready");
      ready.reset();
    });
    return 0;
  }

  // What the parent has open. Above all the memory that it keeps for other servers: it would not be
  // free when they let it go.
  void let_go_of_siblings() {
    ready_fd_.reset();
    signals_.reset();
    metrics_.reset();
    metrics_child_.reset();
    for (const auto& sibling : servers_) {
      sibling->place.socket.listener.reset();
      sibling->vault.close();
      sibling->ready.reset();
      sibling->child.reset();
      sibling->loader.reset();
    }
  }

  // The exit status of the first server that ended for good; nullopt when we are asked to end.
  std::optional<int> wait() {
    for (;;) {
      std::vector<pollfd> events{{signals_.get(), POLLIN, 0},
                                 {metrics_child_ ? metrics_child_->pidfd() : -1, POLLIN, 0}};
      Deadline next = Deadline::never();
      for (const auto& server : servers_) {
        events.push_back({server->vault.fd(), POLLIN, 0});
        events.push_back({server->ready.get(), POLLIN, 0});
        events.push_back({server->child ? server->child->pidfd() : -1, POLLIN, 0});
        events.push_back({server->loader ? server->loader->pidfd() : -1, POLLIN, 0});
        if (server->start_at) next = next.sooner(*server->start_at);
      }
      if (::poll(events.data(), events.size(), next.poll_timeout()) < 0) {
        if (errno == EINTR) continue;
        throw_errno(errno, "wait for the servers");
      }
      if (events[0].revents != 0 && os::read_signal(signals_.get()) != 0) return std::nullopt;
      if (events[1].revents != 0) end_metrics();
      for (std::size_t i = 0; i < servers_.size(); ++i) {
        const std::optional<int> status = look_after(*servers_[i], &events[2 + 4 * i]);
        if (status) return status;
      }
      announce();
    }
  }

  // `events`: of the vault, the ready pipe, the child and the loader. Returns the exit status to
  // end all with.
  std::optional<int> look_after(Server& server, const pollfd* events) {
    if (events[0].revents != 0) server.vault.serve();
    if (events[1].revents != 0) {
      char mark = 0;
      const bool answers = ::read(server.ready.get(), &mark, 1) == 1;
      server.ready.reset();
      if (answers) begin_restore(server);
    }
    if (events[3].revents != 0) end_restore(server);
    if (server.start_at && server.start_at->expired()) start(server);
    if (events[2].revents == 0 || !server.child) return std::nullopt;
    const int status = *server.child->wait(Deadline::never());
    server.child.reset();
    return after_end(server, status);
  }

  // Nobody's memory depends on it.
  void end_metrics() {
    const int status = *metrics_child_->wait(Deadline::never());
    metrics_child_.reset();
    const auto pause = metrics_crashes_.add(Deadline::Clock::now());
    os::log(LogLevel::kWarning, "the server of metrics ended with status {}{}", status,
            pause ? "" : ", once too often: there are no more metrics");
    if (pause) start_metrics();
  }

  std::optional<int> after_end(Server& server, int status) {
    server.ready.reset();
    server.counters->reset_gauges();
    // What it has sent before its end counts.
    if (server.vault.fd() >= 0) server.vault.serve();
    const bool crashed = status > 128;
    std::optional<base::Duration> pause;
    if (crashed && config_.on_crash == OnCrash::kRestart) {
      pause = server.crashes.add(Deadline::Clock::now());
    }
    if (!pause) {
      os::log(LogLevel::kError, "server ended with status {}{}: {}", status,
              crashed && config_.on_crash == OnCrash::kRestart ? ", once too often" : "",
              server.name());
      return status;
    }
    const Deposit* kept = server.vault.deposit();
    os::log(LogLevel::kWarning, "server died of signal {}, starting it again with {}: {}",
            status - 128,
            kept == nullptr ? std::string("nothing published")
                            : std::to_string(kept->memory.size()) + " allocations",
            server.name());
    server.counters->restarts.add();
    server.start_at = Deadline::after(*pause);
    if (server.start_at->expired()) start(server);
    return std::nullopt;
  }

  // A server that began with nothing gets the snapshot.
  void begin_restore(Server& server) {
    if (config_.restore.empty() || server.place.tag != "weights" ||
        server.vault.deposit() != nullptr) {
      server.is_up = true;
      return;
    }
    if (server.loader) {  // of the server before this one
      server.loader->signal(SIGKILL);
      static_cast<void>(server.loader->wait(Deadline::never()));
    }
    const int device = server.place.device.value();
    const std::string snapshot =
        snapshot_of(config_.restore, device, servers_.size() == config_.tags.size());
    os::SpawnOptions options;
    options.parent_death_signal = SIGKILL;
    server.loader.emplace(os::spawn(
        {find_loader(), "--snapshot", snapshot, "--role", "rw_or_ro", "--socket", server.place.path,
         "--device", std::to_string(device), "--driver", config_.driver, "--timeout", "30s", "-q"},
        options));
  }

  // Without its snapshot a server is still good for whoever publishes something else.
  void end_restore(Server& server) {
    const int status = *server.loader->wait(Deadline::never());
    server.loader.reset();
    server.is_up = true;
    if (status == 0) return;
    os::log(LogLevel::kError, "restore {}: gms-load ended with status {}, nothing is published: {}",
            base::quoted(config_.restore), status, server.name());
  }

  void announce() {
    if (announced_) return;
    for (const auto& server : servers_) {
      if (!server->is_up) return;
    }
    announced_ = true;
    if (config_.socket_path.empty()) {
      ready_file_.emplace(make_ready_file(ready_path(config_.socket_dir)));
    }
    if (ready_fd_) os::write_all(ready_fd_.get(), "\n", "write to the ready descriptor");
    ready_fd_.reset();
    os::log(LogLevel::kInfo, "ready: {} servers", servers_.size());
  }

  void stop() {
    ready_file_.reset();
    if (metrics_child_) metrics_child_->signal(SIGKILL);
    for (const auto& server : servers_) {
      if (server->loader) server->loader->signal(SIGKILL);
      if (server->child) server->child->signal(SIGTERM);
    }
    if (metrics_child_) static_cast<void>(metrics_child_->wait(Deadline::never()));
    const Deadline deadline = Deadline::after(kGrace);
    for (const auto& server : servers_) {
      if (server->loader) static_cast<void>(server->loader->wait(Deadline::never()));
      if (!server->child || wait_or_second_signal(*server->child, deadline)) continue;
      os::log(LogLevel::kWarning, "kill the server: {}: {}",
              deadline.expired() ? "it did not end in time" : "asked again to end", server->name());
      server->child->signal(SIGKILL);
      static_cast<void>(server->child->wait(Deadline::never()));
    }
  }

  // False when the child still runs at the deadline, or another signal says: now.
  bool wait_or_second_signal(const os::Child& child, const Deadline& deadline) {
    pollfd events[]{{child.pidfd(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    for (;;) {
      const int ready = ::poll(events, 2, deadline.poll_timeout());
      if (ready < 0 && errno != EINTR) throw_errno(errno, "wait for a server");
      if (ready < 0) continue;
      if (events[0].revents == 0) return false;
      static_cast<void>(child.wait(Deadline::never()));
      return true;
    }
  }

  const BundleConfig& config_;
  UniqueFd signals_;
  UniqueFd metrics_;
  std::optional<os::Child> metrics_child_;
  CrashHistory metrics_crashes_;
  UniqueFd ready_fd_;
  VaultRoom room_;
  std::vector<std::unique_ptr<Server>> servers_;
  bool announced_ = false;
  std::optional<OwnedPath> ready_file_;
};

}  // namespace

int run_bundle(const BundleConfig& config, std::vector<Place> places, UniqueFd signals,
               UniqueFd metrics) {
  return Bundle(config, std::move(places), std::move(signals), std::move(metrics)).run();
}

}  // namespace fo::gms
