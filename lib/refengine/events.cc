#include "refengine/events.h"

#include <nlohmann/json.hpp>

#include "json/dump.h"

namespace fo::refengine {

using nlohmann::json;

json make_event(std::string_view name) {
  return {{"event", name}, {"time", os::wall_seconds()}, {"monotonic", os::monotonic_seconds()}};
}

void EventLog::write(const json& event) const {
  if (fd_.wanted()) fd_.write_line(fo::json::dump(event));
}

}  // namespace fo::refengine
