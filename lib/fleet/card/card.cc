#include "fleet/card/card.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fleet/card/digest.h"
#include "json/canonical.h"
#include "json/object.h"

namespace fo::fleet {
namespace {

using fo::json::Misfit;

constexpr int kVersion = 1;

// Calls `visit` with name, part in the checksum, and value of each field.
template <typename AnyCard, typename Visit>
void for_each_field(AnyCard& card, const Visit& visit) {
  visit("name", false, card.name);
  visit("aliases", false, card.aliases);
  visit("architecture", true, card.architecture);
  visit("dtype", true, card.dtype);
  visit("quantization", true, card.quantization);
  visit("context_length", true, card.context_length);
  visit("config", true, card.config);
  visit("weights", true, card.weights);
  visit("revision", false, card.revision);
  visit("tokenizer", true, card.tokenizer);
  visit("chat_template", true, card.chat_template);
  visit("generation_config", true, card.generation_config);
  visit("parsers", true, card.parsers);
  visit("special_ids", false, card.special_ids);
  visit("draft", false, card.draft);
  visit("adapters", true, card.adapters);
  visit("kv_abi", false, card.kv_abi);
  visit("end_of_thinking", false, card.end_of_thinking);
  visit("stop_ids", false, card.stop_ids);
  visit("generation_defaults", false, card.generation_defaults);
}

template <typename Value>
bool is_empty(const Value& value) {
  return value.empty();
}
bool is_empty(std::uint64_t value) { return value == 0; }

void read(const nlohmann::json& value, std::string& text) {
  if (!value.is_string()) throw Misfit("expected a string");
  text = value.get<std::string>();
}

void read(const nlohmann::json& value, std::uint64_t& number) {
  if (!value.is_number_unsigned()) throw Misfit("expected a non-negative integer");
  number = value.get<std::uint64_t>();
}

void read(const nlohmann::json& value, double& number) {
  if (!value.is_number()) throw Misfit("expected a number");
  number = value.get<double>();
}

template <typename Item>
void read(const nlohmann::json& value, std::vector<Item>& items) {
  if (!value.is_array()) throw Misfit("expected a list");
  for (const nlohmann::json& item : value) read(item, items.emplace_back());
}

template <typename Item>
void read(const nlohmann::json& value, std::map<std::string, Item>& items) {
  if (!value.is_object()) throw Misfit("expected an object");
  for (const auto& [key, item] : value.items()) read(item, items[key]);
}

void check_digest(std::string_view field, const std::string& text) {
  if (text.empty() || is_digest(text)) return;
  throw Misfit("field " + base::quoted(field) + ": " + base::quoted(text) + " is not a digest");
}

Card read_card(const nlohmann::json& object) {
  const nlohmann::json* version = fo::json::find(object, "version");
  if (version == nullptr) throw Misfit("field 'version': missing");
  if (*version != kVersion) throw Misfit("field 'version': expected " + std::to_string(kVersion));
  Card card;
  for_each_field(card, [&](const char* name, bool, auto& value) {
    const nlohmann::json* member = fo::json::find(object, name);
    if (member == nullptr) return;
    try {
      read(*member, value);
    } catch (const Misfit& misfit) {
      throw Misfit("field " + base::quoted(name) + ": " + misfit.what());
    }
  });
  check_digest("config", card.config);
  check_digest("weights", card.weights);
  check_digest("tokenizer", card.tokenizer);
  check_digest("chat_template", card.chat_template);
  check_digest("generation_config", card.generation_config);
  for (const auto& [name, digest] : card.adapters) check_digest("adapters", digest);
  const nlohmann::json* sum = fo::json::find(object, "checksum");
  if (sum != nullptr && *sum != checksum(card)) {
    throw Misfit("field 'checksum': not that of the card, " + checksum(card));
  }
  return card;
}

}  // namespace

std::vector<CardField> fields_of(const Card& card) {
  std::vector<CardField> fields;
  for_each_field(card, [&](const char* name, bool in_checksum, const auto& value) {
    fields.push_back({name, in_checksum, is_empty(value) ? "" : fo::json::canonical(value)});
  });
  return fields;
}

std::string checksum(const Card& card) {
  FieldHash hash;
  for (const CardField& field : fields_of(card)) {
    if (!field.in_checksum) continue;
    hash.add(field.name);
    hash.add(field.value);
  }
  return hash.finish();
}

nlohmann::ordered_json to_json(const Card& card) {
  nlohmann::ordered_json object{{"version", kVersion}, {"checksum", checksum(card)}};
  for_each_field(card, [&](const char* name, bool, const auto& value) {
    if (!is_empty(value)) object[name] = value;
  });
  return object;
}

Card parse_card(std::string_view text, const std::string& file) {
  try {
    return read_card(fo::json::parse_object(text, kMaxCardBytes));
  } catch (const Misfit& misfit) {
    throw base::Error(base::ExitStatus::kBadData,
                      "read " + base::quoted(file) + ": " + misfit.what());
  }
}

}  // namespace fo::fleet
