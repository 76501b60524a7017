// Records of a registry, and the answers of daemons, as text for terminals; records as JSON for
// programs. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "fleet/registry/registry.h"

namespace fo::fleet {

/// A table with a header: id, endpoint, life, url, model and host of instances; key and text of
/// other records follow. Control characters are escaped.
std::string to_text(const std::vector<Record>& records);
/// One JSON object, on one line: {"version": 1, "records": {KEY: record}}.
std::string to_json(const std::vector<Record>& records);
/// One JSON object, on one line: {"event": "put", "key": KEY, "record": record}, or
/// {"event": "stale" or "gone", "key": KEY}, or {"event": "listed"}.
std::string to_json(const RegistryChange& change);

/// A column of a table: the name of the rows' member that it shows. The alignment 'r' is right.
struct Column {
  const char* name;
  char alignment = 'l';
};
/// A table of a list of JSON objects, with a header of the members' names. Throws an exception of
/// the JSON library for another value.
std::string table_of(const nlohmann::json& rows, std::span<const Column> columns);

}  // namespace fo::fleet
