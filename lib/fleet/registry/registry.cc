#include "fleet/registry/registry.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "fleet/registry/key.h"
#include "json/object.h"

namespace fo::fleet {

std::optional<std::string> fault_of(const Record& record) {
  if (record.text.size() > kMaxRecordBytes) {
    return "longer than " + base::format_size(kMaxRecordBytes);
  }
  try {
    const nlohmann::json object = fo::json::parse_object(record.text, kMaxRecordBytes);
    const std::string_view id = id_of(record.key);
    if (id.empty()) return std::nullopt;
    const nlohmann::json* const named = fo::json::find(object, "id");
    if (named == nullptr || !named->is_string()) return "without an id";
    const std::string& name = named->get_ref<const std::string&>();
    if (name != id) return "its id is " + base::quoted(name);
  } catch (const fo::json::Misfit& misfit) {
    return misfit.what();
  }
  return std::nullopt;
}

void check(const Record& record, bool is_kept) {
  const std::string what = "record " + base::quoted(record.key);
  if (!is_key(record.key)) {
    throw base::Error(base::ExitStatus::kUsage, what + ": not a key of a registry");
  }
  if (is_kept_kind(record.key) != is_kept) {
    throw base::Error(base::ExitStatus::kSoftware,
                      what + (is_kept ? ": no process keeps records of this kind"
                                      : ": needs a process that keeps it"));
  }
  if (const std::optional<std::string> fault = fault_of(record)) {
    throw base::Error(base::ExitStatus::kBadData, what + ": " + *fault);
  }
}

}  // namespace fo::fleet
