#include "gms/protocol/endpoint.h"

#include <cstdlib>

#include "base/error.h"
#include "base/units.h"

namespace fo::gms {
namespace {

std::string path_of(const std::string& dir, const std::string& device, std::string_view tag) {
  return dir + "/gms_" + device + "_" + std::string(tag) + ".sock";
}

}  // namespace

std::string socket_dir_or_default(const std::string& dir) {
  if (!dir.empty()) return dir;
  for (const char* name : {"GMS_SOCKET_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

std::string socket_path(const std::string& dir, const base::GpuUuid& uuid, std::string_view tag) {
  return path_of(dir, uuid.value(), tag);
}

std::string socket_link(const std::string& dir, base::DeviceOrdinal device, std::string_view tag) {
  return path_of(dir, std::to_string(device.value()), tag);
}

std::string weights_link(const std::string& dir, base::DeviceOrdinal device) {
  return dir + "/gms_" + std::to_string(device.value()) + ".sock";
}

std::string resolve_socket(const std::string& socket, const std::string& dir,
                           base::DeviceOrdinal device, std::string_view tag) {
  return socket.empty() ? socket_link(socket_dir_or_default(dir), device, tag) : socket;
}

std::string resolve_socket(const std::string& socket, const std::string& dir,
                           const base::GpuUuid& uuid, std::string_view tag) {
  return socket.empty() ? socket_path(socket_dir_or_default(dir), uuid, tag) : socket;
}

std::optional<uid_t> server_uid_from_environment() {
  const char* value = std::getenv("GMS_SERVER_UID");
  if (value == nullptr || *value == '\0') return std::nullopt;
  const std::optional<uid_t> uid = base::parse_id(value);
  if (!uid) {
    throw base::Error(base::ExitStatus::kConfig,
                      "read GMS_SERVER_UID: " + base::quoted(value) + " is not a user id");
  }
  return uid;
}

std::string ready_path(const std::string& dir) { return dir + "/gms-ready"; }

}  // namespace fo::gms
