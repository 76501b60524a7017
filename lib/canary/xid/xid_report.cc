#include "canary/xid/xid_report.h"

#include <nlohmann/json.hpp>

#include "json/object.h"

namespace fo::canary {

std::string to_json(const Xid& xid, const KernelMessage& message) {
  nlohmann::json out{{"bus_id", xid.bus_id},
                     {"xid", xid.code},
                     {"class", to_string(class_of(xid))},
                     {"advice", advice_on(xid)},
                     {"text", xid.text}};
  if (const std::string_view name = name_of(xid.code); !name.empty()) out["name"] = name;
  if (xid.pid) out["pid"] = *xid.pid;
  if (!xid.process.empty()) out["process"] = xid.process;
  if (xid.gpu_instance) out["gpu_instance"] = *xid.gpu_instance;
  if (xid.compute_instance) out["compute_instance"] = *xid.compute_instance;
  if (message.uptime) out["uptime"] = base::seconds_of(*message.uptime);
  if (!message.time.empty()) out["time"] = message.time;
  return fo::json::dump(out);
}

}  // namespace fo::canary
