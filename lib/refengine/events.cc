#include "refengine/events.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::refengine {

using nlohmann::json;

json make_event(std::string_view name) {
  return {{"event", name}, {"time", os::wall_seconds()}, {"monotonic", os::monotonic_seconds()}};
}

void write_event(const os::StatusFd& fd, const json& event) {
  if (fd.wanted()) fd.write_line(fo::json::dump(event));
}

}  // namespace fo::refengine
