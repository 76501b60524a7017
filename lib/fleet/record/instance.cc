#include "fleet/record/instance.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/hex.h"
#include "fleet/card/digest.h"
#include "fleet/registry/key.h"
#include "json/object.h"
#include "os/file/random.h"

namespace fo::fleet {
namespace {

using base::Error;
using base::ExitStatus;
using fo::json::needed_text;
using fo::json::number_in;
using fo::json::text_in;
using nlohmann::json;

constexpr int kRecordVersion = 1;
constexpr std::size_t kIdBytes = 16;
// The life of a record before an operator drained it.
constexpr char kDrainedFrom[] = "drained_from";

constexpr std::array<std::pair<Life, std::string_view>, 5> kLives{{{Life::kStarting, "starting"},
                                                                   {Life::kReady, "ready"},
                                                                   {Life::kDraining, "draining"},
                                                                   {Life::kSpare, "spare"},
                                                                   {Life::kGone, "gone"}}};

Life needed_life(const json& object, const char* name) {
  const std::string text = needed_text(object, name);
  const std::optional<Life> life = parse_life(text);
  if (!life) throw fo::json::Misfit(std::string(name) + " is " + base::quoted(text));
  return *life;
}

std::string needed_string(const json& value, const char* list) {
  if (!value.is_string()) throw fo::json::Misfit(std::string(list) + ": expected strings");
  return value.get<std::string>();
}

// The life of a record; nullopt if it is missing or invalid.
std::optional<Life> life_in(const json& object) {
  const json* const life = fo::json::find(object, "life");
  if (life == nullptr || !life->is_string()) return std::nullopt;
  return parse_life(life->get_ref<const std::string&>());
}

// Applies `change` to the object in `text`, and returns the new text. A record that is gone is
// returned unchanged.
template <typename Change>
std::string changed(const std::string& text, const Change& change) {
  try {
    json object = fo::json::parse_object(text, kMaxRecordBytes);
    if (life_in(object) == Life::kGone) return text;
    change(object);
    return fo::json::dump(object);
  } catch (const fo::json::Misfit& misfit) {
    throw Error(ExitStatus::kBadData, std::string("change a record: ") + misfit.what());
  }
}

}  // namespace

std::string_view to_string(Life life) {
  return std::ranges::find(kLives, life, [](const auto& one) { return one.first; })->second;
}

std::optional<Life> parse_life(std::string_view text) {
  const auto* found = std::ranges::find(kLives, text, [](const auto& one) { return one.second; });
  return found == kLives.end() ? std::nullopt : std::optional(found->first);
}

std::string make_instance_id() { return os::random_hex(kIdBytes); }

std::string derived_instance_id(std::string_view name) {
  return sha256_hex(name).substr(0, 2 * kIdBytes);
}

bool is_instance_id(std::string_view text) {
  return text.size() == 2 * kIdBytes && base::is_hex(text);
}

std::string instance_key(const EndpointId& endpoint, const std::string& id) {
  return "instances/" + to_string(endpoint) + "/" + id;
}

std::optional<EndpointId> endpoint_of(std::string_view key) {
  constexpr std::string_view kBegin = "instances/";
  if (!is_key(key) || !key.starts_with(kBegin)) return std::nullopt;
  key.remove_prefix(kBegin.size());
  return parse_endpoint_id(key.substr(0, key.rfind('/')));
}

std::string encode(const Instance& instance) {
  json object = {
      {"version", kRecordVersion},         {"id", instance.id},        {"url", instance.url},
      {"model", instance.model},           {"card", instance.card},    {"kv_abi", instance.kv_abi},
      {"life", to_string(instance.life)},  {"host", instance.host},    {"gpus", instance.gpus},
      {"started_at", instance.started_at}, {"labels", instance.labels}};
  const auto add = [&](const char* name, const std::optional<std::uint64_t>& value) {
    if (value) object[name] = *value;
  };
  add("slots", instance.slots);
  add("kv_tokens", instance.kv_tokens);
  add("generation", instance.generation);
  add("pid", instance.pid);
  return fo::json::dump(object);
}

Instance decode_instance(const Record& record) {
  const auto read = [&](const json& object) {
    if (!endpoint_of(record.key)) throw fo::json::Misfit("not the key of an instance");
    static_cast<void>(checked_life(record));
    Instance instance;
    instance.id = needed_text(object, "id");
    instance.url = needed_text(object, "url");
    instance.model = text_in(object, "model");
    instance.card = text_in(object, "card");
    instance.kv_abi = text_in(object, "kv_abi");
    instance.life = needed_life(object, "life");
    instance.is_drained = object.contains(kDrainedFrom);
    instance.slots = number_in(object, "slots");
    instance.kv_tokens = number_in(object, "kv_tokens");
    instance.generation = number_in(object, "generation");
    instance.host = text_in(object, "host");
    instance.pid = number_in(object, "pid");
    instance.started_at = text_in(object, "started_at");
    for (const json& gpu : fo::json::list_in(object, "gpus")) {
      instance.gpus.push_back(needed_string(gpu, "gpus"));
    }
    for (const auto& [name, value] : fo::json::object_in(object, "labels").items()) {
      instance.labels[name] = needed_string(value, "labels");
    }
    return instance;
  };
  const auto what = [&] { return "record " + base::quoted(record.key); };
  return fo::json::read_object(record.text, kMaxRecordBytes, what, read, ExitStatus::kBadData);
}

std::optional<Life> life_of(std::string_view text) {
  const std::optional<json> object = fo::json::find_object(text, kMaxRecordBytes);
  return object ? life_in(*object) : std::nullopt;
}

std::string with_life(const std::string& text, Life life) {
  return changed(text, [&](json& object) {
    const bool is_drained = object.contains(kDrainedFrom) && life != Life::kGone;
    object[is_drained ? kDrainedFrom : "life"] = to_string(life);
  });
}

std::string drained(const std::string& text) {
  return changed(text, [](json& object) {
    if (object.contains(kDrainedFrom)) return;
    object[kDrainedFrom] = to_string(needed_life(object, "life"));
    object["life"] = to_string(Life::kDraining);
  });
}

std::string undrained(const std::string& text) {
  return changed(text, [](json& object) {
    if (!object.contains(kDrainedFrom)) return;
    object["life"] = to_string(needed_life(object, kDrainedFrom));
    object.erase(kDrainedFrom);
  });
}

std::string with_generation(const std::string& text, std::uint64_t generation) {
  return changed(text, [&](json& object) { object["generation"] = generation; });
}

std::string with_label(const std::string& text, const std::string& name, const std::string& value) {
  return changed(text, [&](json& object) {
    json& labels = object["labels"];
    if (!labels.is_object()) labels = json::object();
    if (value.empty()) {
      labels.erase(name);
    } else {
      labels[name] = value;
    }
  });
}

}  // namespace fo::fleet
