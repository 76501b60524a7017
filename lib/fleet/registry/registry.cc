#include "fleet/registry/registry.h"

#include <string_view>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "json/object.h"

namespace fo::fleet {

std::string checked_life(const Record& record) {
  const std::string_view id = id_of(record.key);
  bool has_id = false;
  std::string named;
  std::string life;
  fo::json::scan_object(record.text, kMaxRecordBytes,
                        [&](const std::string& key, const std::string* text) {
                          if (key == "id") {
                            has_id = text != nullptr;
                            if (has_id) named = *text;
                          } else if (key == "life") {
                            life = text != nullptr ? *text : "";
                          }
                        });
  if (id.empty()) return life;
  if (!has_id) throw fo::json::Misfit("without an id");
  if (named != id) throw fo::json::Misfit("its id is " + base::quoted(named));
  return life;
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
  try {
    static_cast<void>(checked_life(record));
  } catch (const fo::json::Misfit& misfit) {
    throw base::Error(base::ExitStatus::kBadData, what + ": " + misfit.what());
  }
}

}  // namespace fo::fleet
