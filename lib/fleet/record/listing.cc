#include "fleet/record/listing.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "json/dump.h"
#include "json/object.h"
#include "text/table.h"

namespace fo::fleet {
namespace {

nlohmann::json object_in(const Record& record) {
  return fo::json::find_object(record.text, kMaxRecordBytes).value_or(nlohmann::json::object());
}

std::string name_of(RegistryChange::Kind kind) {
  switch (kind) {
    case RegistryChange::Kind::kPut:
      return "put";
    case RegistryChange::Kind::kStale:
      return "stale";
    case RegistryChange::Kind::kGone:
      return "gone";
    case RegistryChange::Kind::kListed:
      break;
  }
  return "listed";
}

}  // namespace

std::string to_text(const std::vector<Record>& records) {
  text::TextTable instances("llllll");
  instances.add({"ID", "ENDPOINT", "LIFE", "URL", "MODEL", "HOST"});
  text::TextTable others("ll");
  bool has_instances = false;
  for (const Record& record : records) {
    const std::optional<EndpointId> endpoint = endpoint_of(record.key);
    try {
      if (!endpoint) throw base::Error(base::ExitStatus::kBadData, "");
      const Instance instance = decode_instance(record);
      instances.add({instance.id, to_string(*endpoint), std::string(to_string(instance.life)),
                     text::shown(instance.url), text::shown(instance.model),
                     text::shown(instance.host)});
      has_instances = true;
    } catch (const base::Error&) {
      others.add({record.key, text::shown(record.text)});
    }
  }
  return (has_instances ? instances.text() : "") + others.text();
}

std::string to_json(const std::vector<Record>& records) {
  nlohmann::json all = nlohmann::json::object();
  for (const Record& record : records) all[record.key] = object_in(record);
  return fo::json::dump({{"version", 1}, {"records", std::move(all)}});
}

std::string to_json(const RegistryChange& change) {
  nlohmann::json line = {{"event", name_of(change.kind)}};
  if (change.kind != RegistryChange::Kind::kListed) line["key"] = change.record.key;
  if (change.kind == RegistryChange::Kind::kPut) line["record"] = object_in(change.record);
  return fo::json::dump(line);
}

}  // namespace fo::fleet
