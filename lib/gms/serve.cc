#include "gms/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "gms/endpoint.h"
#include "gms/server.h"
#include "os/file.h"
#include "os/log.h"
#include "os/process.h"
#include "os/server_socket.h"
#include "os/signals.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;
using os::OwnedPath;

// What a server gets to let its clients go, before it is killed.
constexpr base::Duration kGrace = std::chrono::seconds(5);

// What was asked for, and what it amounts to here.
struct Settings : ServeConfig {
  std::size_t max_connections;
};

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno(errno, "create a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A link to a socket in the same folder, in place of any older link.
OwnedPath make_link(const std::string& link, const std::string& socket) {
  std::error_code ec;
  const auto status = std::filesystem::symlink_status(link, ec);
  if (std::filesystem::exists(status) && !std::filesystem::is_symlink(status)) {
    throw Error(ExitStatus::kCannotCreate, "make link " + base::quoted(link) + ": a file is there");
  }
  const std::string temporary = link + "." + std::to_string(::getpid());
  std::filesystem::create_symlink(std::filesystem::path(socket).filename(), temporary, ec);
  if (!ec) std::filesystem::rename(temporary, link, ec);
  if (ec) throw Error(ExitStatus::kCannotCreate, "make link " + base::quoted(link), ec);
  return OwnedPath(link);
}

// A folder has room for one bundle: two would share a ready file.
UniqueFd lock_folder(const std::string& dir) {
  std::optional<UniqueFd> lock = os::try_lock_path(ready_path(dir) + ".lock");
  if (!lock) {
    throw Error(ExitStatus::kCannotCreate,
                "serve in folder " + base::quoted(dir) + ": another gms-serve does");
  }
  return std::move(*lock);
}

OwnedPath make_ready_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) {
    throw_errno(errno, ExitStatus::kCannotCreate, "make ready file " + base::quoted(path));
  }
  return OwnedPath(path);
}

// What the parent needs to know of the devices, asked by a child: the parent stays free of CUDA.
// No devices, and the child's exit status, when that failed; the child has said why.
struct Probe {
  std::vector<cuda::DeviceInfo> devices;
  int status = 0;
};

// nullopt when a signal asks us to end meanwhile: a driver may hang.
std::optional<Probe> probe_devices(const Settings& config, int signal_fd) {
  Pipe pipe = make_pipe();
  os::SpawnOptions options;
  options.parent_death_signal = SIGKILL;
  const auto report_devices = [&] {
    const auto driver = cuda::Driver::open(config.driver);
    std::vector<int> wanted = config.devices;
    if (wanted.empty()) {
      const int count = cuda::device_count(*driver);
      for (int device = 0; device < count; ++device) wanted.push_back(device);
    }
    std::string report;
    for (const int device : wanted) {
      const auto info = cuda::device_info(*driver, base::DeviceOrdinal(device));
      report += std::to_string(device) + " " + info.uuid + "\n";
    }
    os::write_all(pipe.writer.get(), report, "report the devices");
    return 0;
  };
  const os::Child child = os::fork_child(report_devices, options);
  pipe.writer.reset();
  std::string report;
  char buffer[4096];
  for (;;) {
    pollfd events[]{{pipe.reader.get(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
    if (::poll(events, 2, -1) < 0 && errno != EINTR) throw_errno(errno, "ask for the devices");
    if (events[1].revents != 0) {
      child.signal(SIGKILL);
      static_cast<void>(child.wait(Deadline::never()));
      return std::nullopt;
    }
    if (events[0].revents == 0) continue;
    const ssize_t got = ::read(pipe.reader.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, "ask for the devices");
    if (got == 0) break;
    report.append(buffer, static_cast<std::size_t>(got));
  }
  Probe probe;
  probe.status = *child.wait(Deadline::never());
  std::istringstream lines(report);
  int device = 0;
  std::string uuid;
  while (lines >> device >> uuid) {
    probe.devices.push_back({base::DeviceOrdinal(device), uuid, {}, 0, 0});
  }
  return probe;
}

// One server: its place in the file system, and its process.
struct Place {
  base::DeviceOrdinal device;
  std::string tag;
  os::ServerSocket socket;
  std::vector<OwnedPath> links;
};

int run_child(const Settings& config, Place& place, UniqueFd ready) {
  // A terminal's SIGINT and SIGHUP go to all of us; the parent turns them into our SIGTERM.
  const UniqueFd stop = os::open_signal_fd(os::signal_set({SIGTERM}));
  ServerConfig server;
  server.driver = cuda::Driver::open(config.driver);
  server.device = cuda::device_info(*server.driver, place.device);
  server.tag = place.tag;
  server.listener = std::move(place.socket.listener);
  server.stop_fd = stop.get();
  server.alloc_retry_interval = config.alloc_retry_interval;
  server.alloc_retry_timeout = config.alloc_retry_timeout;
  server.max_connections = config.max_connections;
  run_server(std::move(server), [&] {
    os::write_all(ready.get(), ".", "report being ready");
    ready.reset();
  });
  return 0;
}

class Bundle {
 public:
  Bundle(const Settings& config, std::vector<Place> places, UniqueFd signals)
      : config_(config),
        places_(std::move(places)),
        signals_(std::move(signals)),
        ready_fd_(config.ready_fd) {}

  int run() {
    try {
      start();
      const std::optional<int> first = wait();
      stop();
      return first.value_or(0);
    } catch (...) {
      stop();  // whoever starts the next one must find the sockets free
      throw;
    }
  }

 private:
  void start() {
    Pipe ready = make_pipe();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      os::SpawnOptions options;
      options.parent_death_signal = SIGKILL;
      children_.push_back(os::fork_child(
          [&] {
            ready.reader.reset();
            ready_fd_.reset();
            signals_.reset();
            for (std::size_t other = 0; other < places_.size(); ++other) {
              if (other != i) places_[other].socket.listener.reset();
            }
            return run_child(config_, places_[i], std::move(ready.writer));
          },
          options));
    }
    for (Place& place : places_) place.socket.listener.reset();
    ready_ = std::move(ready.reader);
  }

  // The exit status of the first server that ended; nullopt when we are asked to end.
  std::optional<int> wait() {
    std::size_t waiting_for = children_.size();
    for (;;) {
      std::vector<pollfd> events{{signals_.get(), POLLIN, 0}, {ready_.get(), POLLIN, 0}};
      for (const os::Child& child : children_) events.push_back({child.pidfd(), POLLIN, 0});
      if (::poll(events.data(), events.size(), -1) < 0) {
        if (errno == EINTR) continue;
        throw_errno(errno, "wait for the servers");
      }
      if (events[0].revents != 0 && os::read_signal(signals_.get()) != 0) return std::nullopt;
      for (std::size_t i = 0; i < children_.size(); ++i) {
        if (events[i + 2].revents == 0) continue;
        const int status = *children_[i].wait(Deadline::never());
        os::log(os::LogLevel::kError, "the server of device {}, tag {} ended with status {}",
                places_[i].device.value(), places_[i].tag, status);
        children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
        return status;
      }
      if (events[1].revents != 0) {
        char marks[64];
        const ssize_t got = ::read(ready_.get(), marks, sizeof marks);
        if (got > 0) waiting_for -= static_cast<std::size_t>(got);
        if (waiting_for == 0 || got <= 0) {
          ready_.reset();
          if (waiting_for == 0) announce();
        }
      }
    }
  }

  void announce() {
    if (config_.socket_path.empty()) {
      ready_file_.emplace(make_ready_file(ready_path(config_.socket_dir)));
    }
    if (ready_fd_) os::write_all(ready_fd_.get(), "\n", "write to the ready descriptor");
    ready_fd_.reset();
    os::log(os::LogLevel::kInfo, "ready: {} servers", places_.size());
  }

  void stop() {
    ready_file_.reset();
    for (const os::Child& child : children_) child.signal(SIGTERM);
    const Deadline deadline = Deadline::after(kGrace);
    for (const os::Child& child : children_) {
      if (wait_or_second_signal(child, deadline)) continue;
      os::log(os::LogLevel::kWarning, "kill server process {}: {}", child.pid(),
              deadline.expired() ? "it did not end in time" : "asked again to end");
      child.signal(SIGKILL);
      static_cast<void>(child.wait(Deadline::never()));
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

  const Settings& config_;
  std::vector<Place> places_;
  UniqueFd signals_;
  UniqueFd ready_fd_;
  UniqueFd ready_;
  std::vector<os::Child> children_;
  std::optional<OwnedPath> ready_file_;
};

}  // namespace

int serve(const ServeConfig& given) {
  Settings config{given, 0};
  config.socket_dir = socket_dir_or_default(given.socket_dir);
  if (config.ready_fd >= 0 && ::fcntl(config.ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
    throw_errno(errno, ExitStatus::kUsage, "use --ready-fd " + std::to_string(config.ready_fd));
  }
  const bool is_bundle = config.socket_path.empty();
  const std::string ready = ready_path(config.socket_dir);
  UniqueFd folder;
  if (is_bundle) {
    folder = lock_folder(config.socket_dir);
    ::unlink(ready.c_str());
  }
  const sigset_t stop = os::signal_set({SIGTERM, SIGINT, SIGHUP});
  os::block_signals(stop);
  UniqueFd signals = os::open_signal_fd(stop);
  config.max_connections = os::raise_fd_limit() / 2;  // the rest is the driver's
  const std::optional<Probe> probe = probe_devices(config, signals.get());
  if (!probe) return 0;
  if (probe->status != 0) return probe->status;
  std::vector<Place> places;
  for (const cuda::DeviceInfo& device : probe->devices) {
    for (const std::string& tag : config.tags) {
      const std::string path =
          is_bundle ? socket_path(config.socket_dir, device.uuid, tag) : config.socket_path;
      Place place{device.ordinal, tag, os::open_server_socket(path), {}};
      if (is_bundle) {
        const int ordinal = device.ordinal.value();
        place.links.push_back(make_link(socket_link(config.socket_dir, ordinal, tag), path));
        if (tag == "weights") {
          place.links.push_back(make_link(weights_link(config.socket_dir, ordinal), path));
        }
      }
      places.push_back(std::move(place));
    }
  }
  return Bundle(config, std::move(places), std::move(signals)).run();
}

}  // namespace fo::gms
