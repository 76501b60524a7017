#include "health.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/screen/output.h"
#include "cuda/gpu_health.h"
#include "json/object.h"
#include "text/table.h"

namespace fo::fo_gpu {
namespace {

using nlohmann::json;

template <typename Value>
void put(json& object, const char* name, const std::optional<Value>& value) {
  if (value) object[name] = *value;
}

void put_object(json& object, const char* name, json members) {
  if (!members.empty()) object[name] = std::move(members);
}

json to_json(const cuda::EccErrors& errors) {
  json object = json::object();
  put(object, "volatile", errors.current);
  put(object, "aggregate", errors.aggregate);
  return object;
}

json to_json(const cuda::LinkHealth& link) {
  json object = {{"link", link.link}, {"active", link.is_active}};
  put(object, "replays", link.replays);
  put(object, "recoveries", link.recoveries);
  put(object, "crc_flit_errors", link.crc_flit_errors);
  put(object, "crc_data_errors", link.crc_data_errors);
  return object;
}

json to_json(const cuda::GpuHealth& gpu, const std::vector<std::string>& problems) {
  json object = {{"index", gpu.index}, {"problems", problems}};
  for (const auto& [name, text] :
       {std::pair("uuid", gpu.uuid), {"name", gpu.name}, {"bus_id", gpu.bus_id}}) {
    if (!text.empty()) object[name] = text;
  }
  put(object, "temperature_celsius", gpu.temperature);
  json ecc = json::object();
  put_object(ecc, "corrected", to_json(gpu.corrected));
  put_object(ecc, "uncorrected", to_json(gpu.uncorrected));
  put_object(object, "ecc", std::move(ecc));
  json pages = json::object();
  put(pages, "single_bit", gpu.retired_pages.single_bit);
  put(pages, "double_bit", gpu.retired_pages.double_bit);
  put(pages, "pending", gpu.retired_pages.is_pending);
  put_object(object, "retired_pages", std::move(pages));
  if (const auto& rows = gpu.remapped_rows) {
    object["remapped_rows"] = {{"corrected", rows->corrected},
                               {"uncorrected", rows->uncorrected},
                               {"pending", rows->is_pending},
                               {"failed", rows->has_failed}};
  }
  if (gpu.throttle_reasons) {
    object["throttle_reasons"] = cuda::throttle_names(*gpu.throttle_reasons);
  }
  json links = json::array();
  for (const cuda::LinkHealth& link : gpu.links) links.push_back(to_json(link));
  put_object(object, "nvlinks", std::move(links));
  return object;
}

// A line for each number or text: "ecc.corrected.volatile  0".
std::string to_text(const json& gpu) {
  text::TextTable table("ll");
  const json values = gpu.flatten();
  for (const auto& [path, value] : values.items()) {
    std::string name = path.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    const std::string shown = value.is_null()     ? "none"
                              : value.is_string() ? value.get<std::string>()
                                                  : value.dump();
    table.add({name, text::shown(shown)});
  }
  return table.text();
}

}  // namespace

base::ExitStatus print_health(const Options& options) {
  const std::optional<base::GpuUuid> uuid =
      options.uuid.empty() ? std::nullopt : std::optional(options.uuid);
  bool is_good = true;
  bool is_first = true;
  for (const cuda::GpuHealth& gpu : cuda::query_gpu_health(uuid)) {
    const std::vector<std::string> problems = cuda::problems_of(gpu);
    is_good = is_good && problems.empty();
    const json object = to_json(gpu, problems);
    if (options.common.json) {
      cli::print_line(fo::json::dump(object));
    } else {
      cli::print((is_first ? "" : "\n") + to_text(object));
    }
    is_first = false;
  }
  return is_good ? base::ExitStatus::kOk : base::ExitStatus::kNo;
}

}  // namespace fo::fo_gpu
