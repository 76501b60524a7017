#include "lock/status_events.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "json/object.h"
#include "lock/grant.h"
#include "text/time_text.h"

namespace fo::lock {

using nlohmann::json;

std::string overlap_json(const Loss& loss) {
  if (!loss.is_overlap_known) return "null";
  return fmt::format("{:.6f}", base::seconds_of(loss.overlap));
}

void StatusEvents::waiting() { fd_.write("waiting"); }

void StatusEvents::granted(const Grant& grant) {
  // Only the id comes from outside; it contains no control characters.
  fd_.write("granted",
            fmt::format(R"("id":{},"generation":{},"granted_at":"{}","waited":{:.6f})",
                        json(grant.id).dump(), grant.generation,
                        text::format_time(grant.granted_at), base::seconds_of(grant.waited)));
}

void StatusEvents::gpu_free(base::ByteCount free, base::Duration waited) {
  fd_.write("gpu_free",
            fmt::format(R"("free":{},"waited":{:.6f})", free, base::seconds_of(waited)));
}

void StatusEvents::child_started(int pid) {
  fd_.write("child_started", fmt::format(R"("pid":{})", pid));
}

void StatusEvents::child_ended(int status) {
  fd_.write("child_ended", fmt::format(R"("status":{})", status));
}

void StatusEvents::lost(const Loss& loss) {
  fd_.write("lost", fmt::format(R"("reason":{},"overlap":{})", fo::json::dump(loss.reason),
                                overlap_json(loss)));
}

}  // namespace fo::lock
