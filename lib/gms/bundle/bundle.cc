#include "gms/bundle/bundle.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/bundle/crash_history.h"
#include "gms/bundle/fd_store.h"
#include "gms/protocol/endpoint.h"
#include "gms/server/metrics_server.h"
#include "gms/server/server.h"
#include "gms/server/server_counters.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/process/process.h"
#include "os/process/signals.h"
#include "os/socket/notify.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;
using os::LogLevel;
using os::OwnedPath;

// The time for a server to disconnect its clients before it is killed, and for a killed process to
// end.
constexpr base::Duration kGrace = std::chrono::seconds(5);
// The time from a server's start until it answers; initialising a driver and many imports are slow.
constexpr base::Duration kStartTimeout = std::chrono::minutes(5);
// Descriptors of the parent that descriptor stores must not use, with as many again for each
// server.
constexpr std::size_t kReserve = 64;
constexpr std::size_t kReservePerServer = 16;
// The tag whose layouts must be preserved, and whose servers get the snapshot.
constexpr const char* kWeightsTag = "weights";
// The restart interval of a server that crashed too often and does not end the others.
constexpr base::Duration kLastResort = std::chrono::minutes(1);

OwnedPath make_ready_file(const std::string& path) {
  os::open_plain_file(path, O_WRONLY | O_CREAT, "create ready file " + base::quoted(path));
  return OwnedPath(path);
}

// The snapshot's folder for one device.
std::string snapshot_of(const std::string& dir, base::DeviceOrdinal device, bool is_only_one) {
  std::string own = dir + "/device-" + std::to_string(device.value());
  std::error_code unknown;
  return is_only_one && !std::filesystem::is_directory(own, unknown) ? dir : own;
}

// gms-load in the folder of this program if it exists there; else its name, to be found in PATH.
std::string find_loader() {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string beside = self.parent_path() / "gms-load";
  return ::access(beside.c_str(), X_OK) == 0 ? beside : "gms-load";
}

struct ServerProcess {
  ServerProcess(ServerEntry where, FdBudget& budget) : entry(std::move(where)), fd_store(budget) {}

  /// Call it when the server has answered and its snapshot, if any, was loaded or failed to load.
  void set_ready() const { counters->ready.set(1); }
  [[nodiscard]] std::string name() const {
    return "device=" + std::to_string(entry.device.value()) + " tag=" + entry.tag;
  }

  ServerEntry entry;
  CounterPage counters = create_counter_page();
  FdStore fd_store;
  CrashHistory crashes;
  std::optional<os::Child> child;
  /// Receives a byte when the child answers.
  UniqueFd ready;
  /// When to restart it.
  std::optional<Deadline> start_at;
  /// When to kill it, unless it has answered.
  std::optional<Deadline> answer_by;
  /// It starts without a layout, and gets the snapshot once it answers.
  bool wants_snapshot = false;
  /// It was started with a stored layout.
  bool began_with_layout = false;
  std::optional<os::Child> loader;
  /// The number of its starts, and the one at which its loader was started.
  unsigned starts = 0;
  unsigned loader_of = 0;
  /// Children that close the memory that its descriptor store has dropped.
  std::vector<os::Child> closers;
};

class Bundle {
 public:
  Bundle(const BundleConfig& config, std::vector<ServerEntry> entries, BundleFds fds)
      : config_(config), fds_(std::move(fds)) {
    const std::size_t reserve = kReserve + kReservePerServer * entries.size();
    budget_.limit = config.fd_limit > reserve ? config.fd_limit - reserve : 0;
    for (ServerEntry& entry : entries) {
      servers_.push_back(std::make_unique<ServerProcess>(std::move(entry), budget_));
      servers_.back()->wants_snapshot = restores(*servers_.back());
    }
  }

  int run() {
    try {
      if (fds_.metrics) start_metrics();
      // A failure of the first start is an error of the machine, not a crash.
      for (const auto& server : servers_) start(*server);
      const std::optional<int> first = wait();
      stop();
      return first.value_or(0);
    } catch (...) {
      stop();  // the next bundle must find the sockets free
      throw;
    }
  }

 private:
  void start(ServerProcess& server) {
    os::Pipe ready;
    server.ready = std::move(ready.reader);
    UniqueFd fd_store;
    if (config_.on_crash == OnCrash::kRestart) fd_store = server.fd_store.open();
    server.child.emplace(os::fork_child(
        [&] { return run_child(server, std::move(ready.writer), std::move(fd_store)); },
        {.parent_death_signal = SIGKILL}));
    ++server.starts;
    server.began_with_layout = server.fd_store.stored_layout() != nullptr;
    server.start_at.reset();
    server.answer_by = Deadline::after(kStartTimeout);
  }

  // If a start fails because no process or descriptor is left, this counts as a crash: it is
  // retried, because the descriptor store still has the layout.
  std::optional<int> start_again(ServerProcess& server) {
    try {
      start(server);
      return std::nullopt;
    } catch (const Error& error) {
      server.child.reset();
      return crash(server, base::to_int(error.status()), error.what());
    }
  }

  void start_metrics() {
    metrics_at_.reset();
    try {
      metrics_child_.emplace(
          os::fork_child([this] { return run_metrics_child(); }, {.parent_death_signal = SIGKILL}));
    } catch (const Error& error) {
      plan_metrics(error.what());
    }
  }

  // In the child.
  int run_metrics_child() {
    const UniqueFd stop = os::open_signal_fd(os::signal_set({SIGTERM}));
    std::vector<MeteredServer> metered;
    for (const auto& server : servers_) {
      metered.push_back(
          {server->entry.device, server->entry.uuid, server->entry.tag, &*server->counters});
    }
    UniqueFd listener = std::move(fds_.metrics);
    release_siblings();
    run_metrics_server(std::move(listener), metered, stop.get());
    return 0;
  }

  // In the child.
  int run_child(ServerProcess& server, UniqueFd ready, UniqueFd fd_store) {
    // A terminal sends SIGINT, SIGHUP and SIGQUIT to all processes of the bundle. Only the parent
    // reacts to them: it sends SIGTERM to its children.
    const UniqueFd stop = os::open_signal_fd(os::signal_set({SIGTERM}));
    ServerConfig config;
    config.listener = std::move(server.entry.socket.listener);
    config.stored_layout = server.fd_store.take();
    release_siblings();
    config.fd_store = std::move(fd_store);
    config.driver = cuda::Driver::open(config_.driver);
    config.device = cuda::device_info(*config.driver, server.entry.device);
    config.tag = server.entry.tag;
    config.stop_fd = stop.get();
    config.counters = &*server.counters;
    config.alloc_retry_interval = config_.alloc_retry_interval;
    config.alloc_retry_timeout = config_.alloc_retry_timeout;
    config.access = config_.access;
    config.max_connections = config_.max_connections;
    config.max_unread_fds = config_.max_unread_fds;
    try {
      run_server(std::move(config), [&] {
        os::write_all(ready.get(), ".", "write the ready message");
        ready.reset();
      });
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      // Out of memory, threads or descriptors: the device is not the cause.
      throw Error(ExitStatus::kOsError, std::string("serve: ") + error.what());
    }
    return 0;
  }

  // Closes what the parent has open: above all the memory of other servers, which otherwise would
  // stay in use when they release it, and its locks, so that after a SIGKILL of the parent the next
  // one need not wait for the last server.
  void release_siblings() {
    fds_ = {};
    metrics_child_.reset();
    for (const auto& sibling : servers_) {
      sibling->entry.socket.listener.reset();
      sibling->entry.socket.lock.reset();
      sibling->fd_store.close();
      sibling->ready.reset();
      sibling->child.reset();
      sibling->loader.reset();
      sibling->closers.clear();
    }
  }

  // Closing the last descriptor of memory takes until the driver has freed it, and the parent must
  // not wait for a driver. So it forks a child with the same descriptors, closes its own, and lets
  // the child's end close the last ones.
  void close_dropped(ServerProcess& server) {
    std::vector<UniqueFd> dropped = server.fd_store.take_dropped();
    if (!dropped.empty()) {
      try {
        server.closers.push_back(os::fork_child([this] {
          release_sockets();
          return 0;
        }));
      } catch (const Error& error) {
        os::log(LogLevel::kWarning, "close the memory of a layout: {}: {}", error.what(),
                server.name());
      }
      dropped.clear();
    }
    if (server.closers.empty()) server.fd_store.answer_drop();
  }

  // In a child.
  void release_sockets() {
    for (const auto& server : servers_) {
      server->entry.socket.listener.reset();
      server->entry.socket.lock.reset();
    }
    release_siblings();
  }

  void reap_closers(ServerProcess& server) {
    std::erase_if(server.closers, [](const os::Child& closer) {
      return closer.wait(Deadline::after(base::Duration::zero())).has_value();
    });
    if (server.closers.empty()) server.fd_store.answer_drop();
  }

  // The exit status of the first server that ended for good; nullopt if a signal asks to end.
  std::optional<int> wait() {
    for (;;) {
      std::vector<pollfd> events{{fds_.signals.get(), POLLIN, 0},
                                 {metrics_child_ ? metrics_child_->pidfd() : -1, POLLIN, 0}};
      Deadline next = Deadline::never();
      if (metrics_at_) next = *metrics_at_;
      for (const auto& server : servers_) {
        events.push_back({server->fd_store.fd(), POLLIN, 0});
        events.push_back({server->ready.get(), POLLIN, 0});
        events.push_back({server->child ? server->child->pidfd() : -1, POLLIN, 0});
        events.push_back({server->loader ? server->loader->pidfd() : -1, POLLIN, 0});
        if (server->start_at) next = next.sooner(*server->start_at);
        if (server->answer_by) next = next.sooner(*server->answer_by);
      }
      for (const auto& server : servers_) {
        for (const os::Child& closer : server->closers) {
          events.push_back({closer.pidfd(), POLLIN, 0});
        }
      }
      if (::poll(events.data(), events.size(), next.poll_timeout()) < 0) {
        if (errno == EINTR) continue;
        throw_errno(errno, "wait for the servers");
      }
      if (events[0].revents != 0 && os::read_signal(fds_.signals.get()) != 0) return std::nullopt;
      if (events[1].revents != 0) end_metrics();
      if (metrics_at_ && metrics_at_->expired()) start_metrics();
      for (std::size_t i = 0; i < servers_.size(); ++i) {
        if (!servers_[i]->closers.empty()) reap_closers(*servers_[i]);
        const std::optional<int> status = look_after(*servers_[i], &events[2 + 4 * i]);
        if (status) return status;
      }
      announce();
    }
  }

  void serve_fd_store(ServerProcess& server) {
    server.fd_store.serve();
    close_dropped(server);
  }

  // `events` are those of the descriptor store, the ready pipe, the child and the loader. Returns
  // the exit status if everything must end.
  std::optional<int> look_after(ServerProcess& server, const pollfd* events) {
    if (events[0].revents != 0) serve_fd_store(server);
    // Before the ready pipe, which may start another loader.
    if (events[3].revents != 0) end_restore(server);
    if (events[1].revents != 0) {
      char mark = 0;
      const bool answers = ::read(server.ready.get(), &mark, 1) == 1;
      server.ready.reset();
      if (answers) server.answer_by.reset();
      const bool has_layout = server.fd_store.stored_layout() != nullptr;
      if (answers && has_layout) server.wants_snapshot = false;
      // It could not restore its stored layout.
      if (answers && !has_layout && server.began_with_layout) {
        server.wants_snapshot = restores(server);
      }
      if (answers && !server.wants_snapshot) server.set_ready();
    }
    const bool answers = server.child && !server.answer_by;
    if (server.wants_snapshot && answers && !server.loader) begin_restore(server);
    if (server.answer_by && server.answer_by->expired()) {
      os::log(LogLevel::kError, "kill the server: it does not answer: {}", server.name());
      server.child->signal(SIGKILL);
      server.answer_by.reset();
    }
    if (server.start_at && server.start_at->expired()) return start_again(server);
    if (events[2].revents == 0 || !server.child) return std::nullopt;
    const std::optional<int> status = server.child->wait(Deadline::never());
    server.child.reset();
    return after_end(server, *status);
  }

  // No memory depends on the metrics server.
  void end_metrics() {
    const int status = *metrics_child_->wait(Deadline::never());
    metrics_child_.reset();
    plan_metrics("ended with status " + std::to_string(status));
  }

  void plan_metrics(const std::string& reason) {
    const auto pause = metrics_crashes_.add(Deadline::Clock::now());
    metrics_at_.reset();
    if (pause) metrics_at_ = Deadline::after(*pause);
    os::log(LogLevel::kWarning, "the metrics server {}{}", reason,
            pause ? "" : ", too many times: it is not restarted");
  }

  std::optional<int> after_end(ServerProcess& server, int status) {
    server.ready.reset();
    server.answer_by.reset();
    // Packets that it has sent before its end still count.
    if (server.fd_store.fd() >= 0) serve_fd_store(server);
    const bool had_layout = server.counters->committed.get() != 0;
    server.counters->reset_gauges();
    // The layout was published but not protected. One that was dropped on purpose is not restored.
    if (had_layout && server.fd_store.stored_layout() == nullptr)
      server.wants_snapshot = restores(server);
    const bool crashed = status > 128;
    // These statuses mean that the server lacked a resource. Its stored layout is kept for another
    // attempt. The status of a device that cannot be trusted, kSoftware, is not among them.
    const bool is_short = status == base::to_int(ExitStatus::kOsError) ||
                          status == base::to_int(ExitStatus::kTryAgain) ||
                          status == base::to_int(ExitStatus::kUnavailable);
    const bool may_come_back =
        crashed || !ends_all(server) || (is_short && server.fd_store.stored_layout() != nullptr);
    if (config_.on_crash == OnCrash::kExit || !may_come_back) {
      os::log(LogLevel::kError, "server ended with status {}: {}", status, server.name());
      return status;
    }
    return crash(server, status,
                 crashed ? "server died of signal " + std::to_string(status - 128)
                         : "server ended with status " + std::to_string(status));
  }

  // Plans the next start; returns the exit status to end with after too many crashes.
  std::optional<int> crash(ServerProcess& server, int status, const std::string& what) {
    auto pause = server.crashes.add(Deadline::Clock::now());
    if (!pause) {
      os::log(LogLevel::kError, "{}, too many times: {}", what, server.name());
      if (ends_all(server)) return status;
      pause = kLastResort;
    }
    const StoredLayout* kept = server.fd_store.stored_layout();
    os::log(LogLevel::kWarning, "{}, restarting it with {}: {}", what,
            kept == nullptr ? std::string("nothing published")
                            : base::counted(kept->memory.size(), "allocation"),
            server.name());
    server.counters->restarts.add();
    server.start_at = Deadline::after(*pause);
    return server.start_at->expired() ? start_again(server) : std::nullopt;
  }

  // Whether all servers end if this one cannot be restarted. Memory of servers without weights
  // belongs to engines, which allocate it again, so that is no reason to lose the weights.
  [[nodiscard]] bool ends_all(const ServerProcess& server) const {
    return server.entry.tag == kWeightsTag ||
           std::none_of(servers_.begin(), servers_.end(),
                        [](const auto& one) { return one->entry.tag == kWeightsTag; });
  }

  [[nodiscard]] bool restores(const ServerProcess& server) const {
    return !config_.restore.empty() && server.entry.tag == kWeightsTag;
  }

  void begin_restore(ServerProcess& server) {
    const base::DeviceOrdinal device = server.entry.device;
    const std::string snapshot =
        snapshot_of(config_.restore, device, servers_.size() == config_.tags.size());
    server.loader_of = server.starts;
    try {
      server.loader.emplace(
          os::spawn({find_loader(), "--snapshot", snapshot, "--role", "rw_or_ro", "--socket",
                     server.entry.path, "--device", std::to_string(device.value()), "--driver",
                     config_.driver, "--timeout", "30s", "-q"},
                    {.parent_death_signal = SIGKILL}));
    } catch (const Error& error) {
      report_failed_restore(server, error.what());
    }
  }

  void end_restore(ServerProcess& server) {
    const int status = *server.loader->wait(Deadline::never());
    server.loader.reset();
    if (status == 0) {
      server.wants_snapshot = false;
      server.set_ready();
      return;
    }
    // Its server crashed; the next one gets the snapshot.
    if (!server.child || server.loader_of != server.starts) return;
    report_failed_restore(server, "gms-load ended with status " + std::to_string(status));
  }

  // A server without its snapshot can still be used to publish.
  void report_failed_restore(ServerProcess& server, const std::string& reason) {
    os::log(LogLevel::kError, "restore {}: {}: {}", base::quoted(config_.restore), reason,
            server.name());
    server.wants_snapshot = false;
    server.set_ready();
  }

  void announce() {
    if (announced_) return;
    for (const auto& server : servers_) {
      if (server->counters->ready.get() == 0) return;
    }
    announced_ = true;
    if (config_.socket_path.empty()) {
      ready_file_.emplace(make_ready_file(ready_path(config_.socket_dir)));
    }
    fds_.ready.announce();
    notifier_.ready();
    os::log(LogLevel::kInfo, "ready: {}", base::counted(servers_.size(), "server"));
  }

  void stop() {
    notifier_.stopping();
    ready_file_.reset();
    if (metrics_child_) metrics_child_->signal(SIGKILL);
    for (const auto& server : servers_) {
      if (server->loader) server->loader->signal(SIGKILL);
      if (server->child) server->child->signal(SIGTERM);
    }
    const Deadline deadline = Deadline::after(kGrace);
    for (const auto& server : servers_) {
      if (!server->child || wait_or_second_signal(*server->child, deadline)) continue;
      os::log(LogLevel::kWarning, "kill the server: {}: {}",
              deadline.expired() ? "it did not end in time" : "a second signal arrived",
              server->name());
      server->child->signal(SIGKILL);
    }
    // A process that is stuck in the kernel cannot die, and must not delay the others.
    const Deadline last = Deadline::after(kGrace);
    const auto reap = [&](const std::optional<os::Child>& child, const std::string& what) {
      if (child && !child->wait(last)) {
        os::log(LogLevel::kError, "{} can't be killed: process {}", what, child->pid());
      }
    };
    reap(metrics_child_, "the metrics server");
    for (const auto& server : servers_) {
      reap(server->loader, "gms-load");
      reap(server->child, "a server");
    }
    // The sockets are closed before the descriptor stores, so that the next bundle need not wait
    // until the driver has freed their memory.
    std::vector<ServerEntry> ended;
    for (const auto& server : servers_) ended.push_back(std::move(server->entry));
  }

  // False if the child still runs at the deadline, or a second signal arrives.
  [[nodiscard]] bool wait_or_second_signal(const os::Child& child, const Deadline& deadline) const {
    pollfd events[]{{child.pidfd(), POLLIN, 0}, {fds_.signals.get(), POLLIN, 0}};
    for (;;) {
      const int ready = ::poll(events, 2, deadline.poll_timeout());
      if (ready < 0 && errno != EINTR) throw_errno(errno, "wait for a server");
      if (ready < 0) continue;
      return events[0].revents != 0;
    }
  }

  const BundleConfig& config_;
  BundleFds fds_;
  std::optional<os::Child> metrics_child_;
  CrashHistory metrics_crashes_;
  /// When to restart it.
  std::optional<Deadline> metrics_at_;
  const os::Notifier notifier_;
  FdBudget budget_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  bool announced_ = false;
  std::optional<OwnedPath> ready_file_;
};

}  // namespace

int run_bundle(const BundleConfig& config, std::vector<ServerEntry> entries, BundleFds fds) {
  return Bundle(config, std::move(entries), std::move(fds)).run();
}

}  // namespace fo::gms
