#include "fleet/record/listing.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "json/object.h"
#include "text/table.h"

namespace fo::fleet {
namespace {

nlohmann::json object_in(const Record& record) {
  return fo::json::find_object(record.text, kMaxRecordBytes).value_or(nlohmann::json::object());
}

// In the order of RegistryChange::Kind.
constexpr std::array kKindNames{"put", "stale", "gone", "listed"};

std::string cell(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const value = fo::json::find(object, name);
  if (value == nullptr) return "-";
  if (value->is_boolean()) return value->get<bool>() ? "yes" : "no";
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  return text.empty() ? "-" : text::shown(text);
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
  nlohmann::json line = {{"event", kKindNames.at(static_cast<std::size_t>(change.kind))}};
  if (change.kind != RegistryChange::Kind::kListed) line["key"] = change.record.key;
  if (change.kind == RegistryChange::Kind::kPut) line["record"] = object_in(change.record);
  return fo::json::dump(line);
}

std::string table_of(const nlohmann::json& rows, std::span<const Column> columns) {
  std::string alignment;
  std::vector<std::string> header;
  for (const Column& column : columns) {
    alignment += column.alignment;
    header.emplace_back(column.name);
    std::ranges::replace(header.back(), '_', ' ');
  }
  text::TextTable table(alignment);
  table.add(std::move(header));
  for (const nlohmann::json& row : rows.get_ref<const nlohmann::json::array_t&>()) {
    std::vector<std::string> cells;
    for (const Column& column : columns) cells.push_back(cell(row, column.name));
    table.add(std::move(cells));
  }
  return table.text();
}

}  // namespace fo::fleet
