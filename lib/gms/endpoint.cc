#include "gms/endpoint.h"

#include <cstdlib>

namespace fo::gms {

std::string socket_dir_or_default(const std::string& dir) {
  if (!dir.empty()) return dir;
  for (const char* name : {"GMS_SOCKET_DIR", "TMPDIR"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/tmp";
}

std::string socket_path(const std::string& dir, std::string_view uuid, std::string_view tag) {
  return dir + "/gms_" + std::string(uuid) + "_" + std::string(tag) + ".sock";
}

std::string socket_link(const std::string& dir, int device, std::string_view tag) {
  return socket_path(dir, std::to_string(device), tag);
}

std::string weights_link(const std::string& dir, int device) {
  return dir + "/gms_" + std::to_string(device) + ".sock";
}

std::string ready_path(const std::string& dir) { return dir + "/gms-ready"; }

}  // namespace fo::gms
