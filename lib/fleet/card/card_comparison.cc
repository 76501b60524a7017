#include "fleet/card/card_comparison.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

namespace fo::fleet {
namespace {

std::set<std::string_view> names_of(const Card& card) {
  std::set<std::string_view> names(card.aliases.begin(), card.aliases.end());
  names.insert(card.name);
  names.erase("");
  return names;
}

bool have_common_name(const Card& a, const Card& b) {
  const auto names = names_of(a);
  const auto others = names_of(b);
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return others.contains(name); });
}

std::string value_text(const std::string& value) { return value.empty() ? "none" : value; }

std::string conclusion(const char* what, bool may, const std::string& reason) {
  return std::string(may ? "may " : "may not ") + what + ": " + reason + "\n";
}

std::string checksum_reason(const CardComparison& comparison) {
  if (comparison.may_migrate) return "the checksums are equal";
  std::string fields;
  for (const CardDifference& one : comparison.differences) {
    if (!one.in_checksum) continue;
    fields += (fields.empty() ? "" : ", ") + std::string(one.field);
  }
  return "the checksums differ by " + fields;
}

}  // namespace

CardComparison compare(const Card& a, const Card& b) {
  CardComparison result;
  const auto fields = fields_of(a);
  const auto others = fields_of(b);
  result.may_migrate = true;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].value == others[i].value) continue;
    result.differences.push_back(
        {fields[i].name, fields[i].in_checksum, fields[i].value, others[i].value});
    if (fields[i].in_checksum) result.may_migrate = false;
  }
  result.may_share_traffic = have_common_name(a, b);
  result.may_pair = result.may_migrate && a.kv_abi == b.kv_abi;
  return result;
}

std::string to_text(const CardComparison& comparison) {
  std::string text;
  for (const CardDifference& one : comparison.differences) {
    text += std::string(one.field) + ": " + value_text(one.a) + " and " + value_text(one.b) + "\n";
  }
  const std::string sums = checksum_reason(comparison);
  text += conclusion(
      "share traffic", comparison.may_share_traffic,
      comparison.may_share_traffic ? "they have a name in common" : "they have no name in common");
  text += conclusion("migrate", comparison.may_migrate, sums);
  text += conclusion("pair", comparison.may_pair,
                     !comparison.may_migrate ? sums
                     : comparison.may_pair   ? "the KV caches match"
                                             : "kv_abi differs");
  return text;
}

std::string to_json(const CardComparison& comparison) {
  using Json = nlohmann::ordered_json;
  const auto value = [](const std::string& text) {
    return text.empty() ? Json() : Json::parse(text);
  };
  Json differences = Json::array();
  for (const CardDifference& one : comparison.differences) {
    differences.push_back(Json{{"field", one.field},
                               {"in_checksum", one.in_checksum},
                               {"a", value(one.a)},
                               {"b", value(one.b)}});
  }
  return Json{{"differences", std::move(differences)},
              {"may_share_traffic", comparison.may_share_traffic},
              {"may_migrate", comparison.may_migrate},
              {"may_pair", comparison.may_pair}}
      .dump();
}

}  // namespace fo::fleet
