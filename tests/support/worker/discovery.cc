#include "support/worker/discovery.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "os/file/file.h"
#include "os/file/file_lock.h"
#include "os/socket/status_fd.h"

namespace fo::stand_in {
namespace {

// Containers that share the file may run as different users.
constexpr mode_t kForAll = 0666;

// The variables that Dynamo's runtime reads when it registers.
constexpr const char* kVariables[] = {
    "POD_NAME",      "POD_NAMESPACE",         "POD_UID",        "DYN_NAMESPACE",
    "DYN_COMPONENT", "DYN_DISCOVERY_BACKEND", "CONTAINER_NAME", "DYN_KUBE_DISCOVERY_MODE"};

nlohmann::ordered_json environment() {
  nlohmann::ordered_json found = nlohmann::ordered_json::object();
  for (const char* const name : kVariables) {
    if (const char* value = std::getenv(name)) found[name] = value;
  }
  return found;
}

}  // namespace

Discovery::Discovery(std::string engine_id) : engine_id_(std::move(engine_id)) {
  const char* path = std::getenv("STAND_IN_DISCOVERY");
  if (path != nullptr) path_ = path;
}

void Discovery::append(std::string_view event, std::uint16_t port) {
  if (path_.empty()) return;
  nlohmann::ordered_json line{{"event", event},
                              {"engine", engine_id_},
                              {"pid", ::getpid()},
                              {"time", os::monotonic_seconds()}};
  if (port != 0) {
    line["port"] = port;
    line["env"] = environment();
  }
  const base::UniqueFd file = os::open_file(path_, O_WRONLY | O_CREAT | O_APPEND, kForAll);
  os::write_all(file.get(), line.dump() + "\n", "append to the discovery file");
}

void Discovery::serve() {
  if (path_.empty() || serving_) return;
  serving_ = os::open_file(path_ + ".serving", O_RDWR | O_CREAT, kForAll);
  append(os::try_lock_file(serving_.get()) ? "serving" : "two_serve");
}

void Discovery::stop() {
  if (!serving_) return;
  append("stopped");
  serving_.reset();
}

void Discovery::enroll(std::uint16_t port) {
  if (std::exchange(enrolled_, true)) return;
  append("registered", port);
  serve();
}

void Discovery::withdraw() {
  if (!std::exchange(enrolled_, false)) return;
  append("unregistered");
  stop();
}

}  // namespace fo::stand_in
