#include "device/gpu_probe.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/deadline.h"
#include "device/gpu_memory.h"
#include "json/probe_result.h"

namespace fo::device {

GpuAnswer probe_gpu(const GpuProbe& probe) {
  GpuMemory memory(probe.wanted, probe.device);
  // One query for the whole wait: the helper polls the driver by itself.
  const std::optional<bool> enough =
      memory.ask(probe.wait, base::Deadline::after(probe.wait + probe.timeout));
  if (!enough) throw memory.no_answer();
  GpuAnswer answer;
  answer.yes = *enough;
  answer.free = memory.free();
  if (!answer.yes) answer.reason = memory.describe();
  return answer;
}

std::string to_json(const GpuAnswer& answer) {
  return json::probe_result(answer.yes, answer.reason, {{"free", answer.free}});
}

}  // namespace fo::device
