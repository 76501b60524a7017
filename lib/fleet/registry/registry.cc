#include "fleet/registry/registry.h"

#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "json/object.h"
#include "json/scanner.h"

namespace fo::fleet {

std::string checked_life(const Record& record) {
  if (record.text.size() > kMaxRecordBytes) throw fo::json::Misfit("too long");
  const std::string_view id = id_of(record.key);
  std::optional<std::string> named;
  std::string life;
  fo::json::Scanner scanner(record.text);
  if (scanner.kind() != fo::json::Scanner::Kind::kObject) {
    throw fo::json::Misfit("expected an object");
  }
  scanner.object([&](std::string_view name) {
    const bool is_id = name == "id";
    const bool is_life = name == "life";
    std::optional<std::string> text;
    if ((is_id || is_life) && scanner.kind() == fo::json::Scanner::Kind::kText) {
      text = scanner.text();
    } else {
      scanner.skip();
    }
    if (is_id) named = std::move(text);
    if (is_life) life = text.value_or("");
  });
  scanner.end();
  if (id.empty()) return life;
  if (!named) throw fo::json::Misfit("missing id");
  if (*named != id) throw fo::json::Misfit("its id is " + base::quoted(*named));
  return life;
}

void check_key(const std::string& key, bool ephemeral) {
  const std::string what = "record " + base::quoted(key);
  if (!is_key(key)) {
    throw base::Error(base::ExitStatus::kUsage, what + ": not a key of a registry");
  }
  if (is_ephemeral(key) != ephemeral) {
    throw base::Error(base::ExitStatus::kSoftware,
                      what + (ephemeral ? ": no process keeps records of this kind"
                                        : ": needs a process that keeps it"));
  }
}

void check(const Record& record, bool ephemeral) {
  check_key(record.key, ephemeral);
  try {
    static_cast<void>(checked_life(record));
  } catch (const fo::json::Misfit& misfit) {
    throw base::Error(base::ExitStatus::kBadData,
                      "record " + base::quoted(record.key) + ": " + misfit.what());
  }
}

}  // namespace fo::fleet
