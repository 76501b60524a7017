#include "gms/client/discover.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/units.h"

namespace fo::gms {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::ExitStatus;

constexpr std::size_t kMaxSockets = 4096;

std::vector<FoundSocket> read_names(const std::string& dir) {
  std::error_code error;
  std::vector<FoundSocket> found;
  fs::directory_iterator entries(dir, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::optional<FoundSocket> socket = parse_socket_name(entries->path().filename().native());
    if (!socket) continue;
    if (found.size() == kMaxSockets) {
      throw Error(ExitStatus::kBadData, "look for sockets in " + base::quoted(dir) + ": over " +
                                            std::to_string(kMaxSockets) + " of them");
    }
    socket->path = dir + "/" + entries->path().filename().native();
    found.push_back(std::move(*socket));
  }
  if (error) base::throw_errno(error.value(), "look for sockets in " + base::quoted(dir));
  // A link by index comes before the socket that it points to, which has no device.
  std::sort(found.begin(), found.end(), [](const FoundSocket& a, const FoundSocket& b) {
    return std::tuple(!a.device, a.device, a.tag, a.path) <
           std::tuple(!b.device, b.device, b.tag, b.path);
  });
  return found;
}

}  // namespace

std::optional<FoundSocket> parse_socket_name(std::string_view name) {
  constexpr std::string_view kStart = "gms_";
  constexpr std::string_view kEnd = ".sock";
  if (name.size() < kStart.size() + kEnd.size() || !name.starts_with(kStart) ||
      !name.ends_with(kEnd)) {
    return std::nullopt;
  }
  name.remove_prefix(kStart.size());
  name.remove_suffix(kEnd.size());
  // Indexes and uuids contain no underscore; tags may.
  const std::size_t split = name.find('_');
  if (split == std::string_view::npos || split == 0 || split + 1 == name.size()) {
    return std::nullopt;
  }
  FoundSocket socket;
  socket.tag = name.substr(split + 1);
  const std::optional<std::uint64_t> number = base::parse_uint(name.substr(0, split));
  if (number && *number <= 1023) socket.device.emplace(static_cast<int>(*number));
  if (!number) socket.uuid = name.substr(0, split);
  return socket;
}

std::vector<FoundSocket> find_sockets(const std::string& dir) {
  std::vector<FoundSocket> found;
  std::set<fs::path> seen;
  for (FoundSocket& socket : read_names(dir)) {
    std::error_code dangling;
    fs::path real = fs::canonical(socket.path, dangling);
    if (dangling) real = socket.path;
    if (seen.insert(std::move(real)).second) found.push_back(std::move(socket));
  }
  return found;
}

std::vector<base::DeviceOrdinal> find_devices(const std::string& dir,
                                              const std::vector<std::string>& tags) {
  std::set<base::DeviceOrdinal> devices;
  std::error_code error;
  if (!fs::exists(dir, error) && !error) return {};
  for (const FoundSocket& socket : read_names(dir)) {
    const bool wanted = std::find(tags.begin(), tags.end(), socket.tag) != tags.end();
    if (socket.device && wanted) devices.insert(*socket.device);
  }
  return {devices.begin(), devices.end()};
}

}  // namespace fo::gms
