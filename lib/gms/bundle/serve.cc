#include "gms/bundle/serve.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/nvml.h"
#include "gms/bundle/bundle.h"
#include "gms/protocol/endpoint.h"
#include "gms/server/server.h"
#include "http/server.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/log.h"
#include "os/process/process.h"
#include "os/process/signals.h"
#include "os/socket/ready_fd.h"
#include "os/socket/server_socket.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;
using os::OwnedPath;

// The time for a killed child to end.
constexpr base::Duration kTimeToDie = std::chrono::seconds(5);

// Creates a link to a socket in the same folder; replaces an older link.
OwnedPath make_link(const std::string& link, const std::string& socket) {
  std::error_code ec;
  const auto status = std::filesystem::symlink_status(link, ec);
  if (std::filesystem::exists(status) && !std::filesystem::is_symlink(status)) {
    throw Error(ExitStatus::kCannotCreate,
                "create link " + base::quoted(link) + ": a file exists there");
  }
  const std::string temporary = link + "." + std::to_string(::getpid());
  std::filesystem::create_symlink(std::filesystem::path(socket).filename(), temporary, ec);
  if (!ec) std::filesystem::rename(temporary, link, ec);
  if (ec) throw Error(ExitStatus::kCannotCreate, "create link " + base::quoted(link), ec);
  return OwnedPath(link);
}

// A folder holds one bundle, because two would share a ready file.
UniqueFd lock_folder(const std::string& dir) {
  std::optional<UniqueFd> lock = os::try_lock_path(ready_path(dir) + ".lock");
  if (!lock) {
    throw Error(ExitStatus::kCannotCreate,
                "serve in folder " + base::quoted(dir) + ": another gms-serve uses it");
  }
  return std::move(*lock);
}

// The devices to serve. A child queries them, so that the parent does not load CUDA. If the query
// failed, `devices` is empty and `status` is the child's exit status; the child has reported why.
struct Probe {
  std::vector<cuda::DeviceInfo> devices;
  int status = 0;
};

// Dynamo's clients find the socket of their device by the UUID at their index in NVML.
void warn_of_order(const cuda::DeviceInfo& device) {
  if (device.gpu_uuid.empty()) return;
  const int number = device.ordinal.value();
  try {
    const int index = cuda::nvml_device_index(device.gpu_uuid);
    if (index == number) return;
    os::log(os::LogLevel::kWarning,
            "CUDA's device {} is NVML's device {}: clients that ask NVML for their device, as "
            "Dynamo's do, look for another socket (set CUDA_DEVICE_ORDER=PCI_BUS_ID, and not "
            "CUDA_VISIBLE_DEVICES, here and in the engines)",
            number, index);
  } catch (const Error&) {
    // Without NVML those clients fail with a message of their own.
  }
}

int report_devices(const ServeConfig& config, int to) {
  const auto driver = cuda::Driver::open(config.driver);
  std::vector<base::DeviceOrdinal> wanted = config.devices;
  if (wanted.empty()) {
    const int count = cuda::device_count(*driver);
    for (int device = 0; device < count; ++device) wanted.emplace_back(device);
  }
  std::string report;
  for (const base::DeviceOrdinal device : wanted) {
    const auto info = cuda::device_info(*driver, device);
    if (!driver->simulated()) warn_of_order(info);
    report += std::to_string(device.value()) + " " + info.uuid.value() + " " +
              (info.gpu_uuid.empty() ? "-" : info.gpu_uuid.value()) + "\n";
  }
  os::write_all(to, report, "write the list of devices");
  return 0;
}

std::vector<cuda::DeviceInfo> parse_devices(const std::string& report) {
  std::vector<cuda::DeviceInfo> devices;
  std::istringstream lines(report);
  int ordinal = 0;
  std::string uuid;
  std::string gpu_uuid;
  while (lines >> ordinal >> uuid >> gpu_uuid) {
    cuda::DeviceInfo& device = devices.emplace_back();
    device.ordinal = base::DeviceOrdinal(ordinal);
    device.uuid = base::GpuUuid(uuid);
    if (gpu_uuid != "-") device.gpu_uuid = base::GpuUuid(gpu_uuid);
  }
  return devices;
}

// nullopt if a signal asks to end before the child does. The driver may hang, and then even SIGKILL
// may not end the child.
std::optional<Probe> probe_devices(const ServeConfig& config, int signal_fd) {
  os::Pipe pipe;
  const os::Child child = os::fork_child([&] { return report_devices(config, pipe.writer.get()); },
                                         {.parent_death_signal = SIGKILL});
  pipe.writer.reset();
  std::string report;
  char buffer[4096];
  pollfd events[]{
      {pipe.reader.get(), POLLIN, 0}, {child.pidfd(), POLLIN, 0}, {signal_fd, POLLIN, 0}};
  for (;;) {
    if (::poll(events, std::size(events), -1) < 0 && errno != EINTR) {
      throw_errno(errno, "read the list of devices");
    }
    if (events[2].revents != 0) {
      child.signal(SIGKILL);
      static_cast<void>(child.wait(Deadline::after(kTimeToDie)));
      return std::nullopt;
    }
    if (events[0].revents != 0) {
      const ssize_t got = ::read(pipe.reader.get(), buffer, sizeof buffer);
      if (got < 0 && errno != EINTR) throw_errno(errno, "read the list of devices");
      if (got > 0) report.append(buffer, static_cast<std::size_t>(got));
      // Everything is read; only the child's end is left.
      if (got == 0) events[0].fd = -1;
    } else if (events[1].revents != 0) {
      break;
    }
  }
  const int status = *child.wait(Deadline::never());
  return Probe{parse_devices(report), status};
}

// Whether the device is a MIG slice, and the only one of its GPU that is served here. Clients of
// such a slice that use NVML look for the GPU's UUID.
bool is_only_slice(const cuda::DeviceInfo& device, const std::vector<cuda::DeviceInfo>& all) {
  return !device.gpu_uuid.empty() && device.gpu_uuid != device.uuid &&
         std::count_if(all.begin(), all.end(), [&](const cuda::DeviceInfo& one) {
           return one.gpu_uuid == device.gpu_uuid;
         }) == 1;
}

}  // namespace

int serve(const ServeConfig& given) {
  BundleConfig config{given};
  config.socket_dir = socket_dir_or_default(given.socket_dir);
  os::ReadyFd ready_fd(config.ready_fd);
  const bool is_bundle = config.socket_path.empty();
  const std::string ready = ready_path(config.socket_dir);
  UniqueFd folder;
  if (is_bundle) {
    folder = lock_folder(config.socket_dir);
    ::unlink(ready.c_str());
  }
  UniqueFd signals = os::open_ending_signals();
  config.fd_limit = os::raise_fd_limit();
  config.max_connections = std::min(config.fd_limit / 2, kMaxConnections);
  UniqueFd metrics;
  if (!config.metrics.empty()) metrics = http::listen_tcp(config.metrics).fd;
  const std::optional<Probe> probe = probe_devices(config, signals.get());
  if (!probe) return 0;
  if (probe->status != 0) return probe->status;
  // Descriptors in flight count for all processes of a user together; the driver needs the others.
  const std::size_t servers = std::max<std::size_t>(probe->devices.size() * config.tags.size(), 1);
  config.max_unread_fds = std::clamp<std::size_t>(config.fd_limit / 8 / servers, 1, kMaxUnreadFds);
  std::vector<ServerEntry> entries;
  for (const cuda::DeviceInfo& device : probe->devices) {
    for (const std::string& tag : config.tags) {
      const std::string path =
          is_bundle ? socket_path(config.socket_dir, device.uuid, tag) : config.socket_path;
      ServerEntry entry{device.ordinal,
                        device.uuid,
                        tag,
                        path,
                        os::open_server_socket(path, config.socket_mode),
                        {}};
      if (is_bundle) {
        const base::DeviceOrdinal ordinal = device.ordinal;
        entry.links.push_back(make_link(socket_link(config.socket_dir, ordinal, tag), path));
        if (tag == "weights") {
          entry.links.push_back(make_link(weights_link(config.socket_dir, ordinal), path));
        }
        if (is_only_slice(device, probe->devices)) {
          entry.links.push_back(
              make_link(socket_path(config.socket_dir, device.gpu_uuid, tag), path));
        }
      }
      entries.push_back(std::move(entry));
    }
  }
  BundleFds fds{std::move(ready_fd), std::move(signals), std::move(metrics), std::move(folder)};
  return run_bundle(config, std::move(entries), std::move(fds));
}

}  // namespace fo::gms
