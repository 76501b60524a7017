#include "fleet/registry/registry.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "json/object.h"

namespace fo::fleet {

std::optional<std::string> fault_of(const Record& record) {
  try {
    return fault_in(record.key, fo::json::parse_object(record.text, kMaxRecordBytes));
  } catch (const fo::json::Misfit& misfit) {
    return misfit.what();
  }
}

std::optional<std::string> fault_in(std::string_view key, const nlohmann::json& object) {
  const std::string_view id = id_of(key);
  if (id.empty()) return std::nullopt;
  const nlohmann::json* const named = fo::json::find(object, "id");
  if (named == nullptr || !named->is_string()) return "without an id";
  const std::string& name = named->get_ref<const std::string&>();
  return name == id ? std::nullopt : std::optional("its id is " + base::quoted(name));
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
