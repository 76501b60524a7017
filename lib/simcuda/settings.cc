// Parsing of the GMS_SIM_* variables. See settings.h.
#include "simcuda/settings.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

namespace fo::simcuda {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t factor;
};
constexpr Unit kDurations[] = {{"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
constexpr Unit kSizes[] = {{"", 1},
                           {"KiB", std::uint64_t{1} << 10},
                           {"MiB", std::uint64_t{1} << 20},
                           {"GiB", std::uint64_t{1} << 30},
                           {"TiB", std::uint64_t{1} << 40}};
constexpr std::uint64_t kMaxQuantity = std::numeric_limits<std::int64_t>::max();

template <typename Units>
std::optional<std::uint64_t> parse_quantity(std::string_view text, const Units& units) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const auto suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (unit.name == suffix && number <= kMaxQuantity / unit.factor) return number * unit.factor;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  constexpr Unit kNone[] = {{"", 1}};
  return parse_quantity(text, kNone);
}

/// The items of a comma-separated list; empty for an empty text.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> items;
  while (!text.empty()) {
    const auto comma = text.find(',');
    items.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return items;
}

[[noreturn]] void reject(const char* variable, std::string_view value, const char* want) {
  throw SettingsError(std::string(variable) + "='" + std::string(value) + "': not " + want);
}

const char* env(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

void read_size(const char* variable, std::uint64_t minimum, std::uint64_t& into) {
  const char* value = env(variable);
  if (!value) return;
  const auto size = parse_size(value);
  if (!size || *size < minimum) reject(variable, value, "a valid size");
  into = *size;
}

Fault parse_fault(std::string_view item) {
  constexpr const char* kWant = "a list of function:k=what";
  const auto equals = item.rfind('=');
  const auto colon = item.rfind(':', equals);
  if (equals == std::string_view::npos || colon == std::string_view::npos || colon == 0) {
    reject("GMS_SIM_FAULTS", item, kWant);
  }
  Fault fault;
  fault.function = unversioned(item.substr(0, colon));

  auto which = item.substr(colon + 1, equals - colon - 1);
  if (which == "*") {
    fault.and_later = true;
  } else {
    if (which.ends_with('+')) {
      fault.and_later = true;
      which.remove_suffix(1);
    }
    const auto first = parse_number(which);
    if (!first || *first == 0) reject("GMS_SIM_FAULTS", item, kWant);
    fault.first = *first;
  }

  const auto what = item.substr(equals + 1);
  if (what == "hang") {
    fault.action = Fault::Action::kHang;
  } else if (what == "kill") {
    fault.action = Fault::Action::kKill;
  } else if (what == "oom") {
    fault.result = 2;
  } else if (what == "unknown") {
    fault.result = 999;
  } else {
    const auto number = parse_number(what);
    if (!number || *number == 0 || *number > 9999) {
      reject("GMS_SIM_FAULTS", item, "ending in oom, unknown, hang, kill or an error number");
    }
    fault.result = static_cast<std::uint32_t>(*number);
  }
  return fault;
}

struct QuirkWord {
  std::string_view word;
  std::vector<bool Quirks::*> means;
};
const std::vector<QuirkWord>& quirk_words() {
  static const std::vector<QuirkWord> kWords{
      {"need-context", {&Quirks::map_needs_context, &Quirks::import_needs_context}},
      {"map-needs-context", {&Quirks::map_needs_context}},
      {"import-needs-context", {&Quirks::import_needs_context}},
      {"no-reexport", {&Quirks::no_reexport}},
      {"late-copy-errors", {&Quirks::late_copy_errors}},
      {"no-uuid", {&Quirks::no_uuid}},
      {"mig", {&Quirks::mig}}};
  return kWords;
}

/// -1 if none matches, or more than one.
int find_device(std::string_view item, const std::vector<std::string>& uuids) {
  const auto count = static_cast<int>(uuids.size());
  if (const auto ordinal = parse_number(item)) {
    return *ordinal < uuids.size() ? static_cast<int>(*ordinal) : -1;
  }
  if (item.size() < 5) return -1;
  int found = -1;
  for (int i = 0; i < count; ++i) {
    const std::string& uuid = uuids[static_cast<std::size_t>(i)];
    if (item.size() > uuid.size()) continue;
    if (::strncasecmp(uuid.data(), item.data(), item.size()) != 0) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

}  // namespace

std::string_view unversioned(std::string_view function) {
  if (function.ends_with("_v2")) function.remove_suffix(3);
  return function;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto duration = parse_quantity(text, kDurations);
  if (!duration) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*duration));
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  return parse_quantity(text, kSizes);
}

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  for (const auto item : split(text)) faults.push_back(parse_fault(item));
  return faults;
}

std::vector<Latency> parse_latencies(std::string_view text) {
  std::vector<Latency> latencies;
  for (const auto item : split(text)) {
    const auto equals = item.find('=');
    const auto duration =
        equals == std::string_view::npos ? std::nullopt : parse_duration(item.substr(equals + 1));
    if (!duration || equals == 0) {
      reject("GMS_SIM_LATENCY", item, "a list of function=duration");
    }
    latencies.push_back({std::string(unversioned(item.substr(0, equals))), *duration});
  }
  return latencies;
}

Quirks parse_quirks(std::string_view text) {
  Quirks quirks;
  const auto& words = quirk_words();
  for (const auto item : split(text)) {
    const auto found = std::find_if(words.begin(), words.end(),
                                    [&](const QuirkWord& known) { return known.word == item; });
    if (found == words.end()) {
      reject("GMS_SIM_QUIRKS", item,
             "need-context, map-needs-context, import-needs-context, no-reexport, "
             "late-copy-errors, no-uuid or mig");
    }
    for (const auto quirk : found->means) quirks.*quirk = true;
  }
  return quirks;
}

std::vector<int> visible_devices(std::string_view list, const std::vector<std::string>& uuids) {
  std::vector<int> visible;
  for (const auto item : split(list)) {
    const int device = find_device(item, uuids);
    if (device < 0 || std::find(visible.begin(), visible.end(), device) != visible.end()) break;
    visible.push_back(device);
  }
  return visible;
}

Settings Settings::from_env() {
  Settings settings;
  if (const char* dir = env("GMS_SIM_DIR")) {
    settings.dir = dir;
  } else {
    settings.dir = "/dev/shm/gms-sim-" + std::to_string(::geteuid());
    settings.dir_is_default = true;
  }
  if (const char* devices = env("GMS_SIM_DEVICES")) {
    const auto count = parse_number(devices);
    if (!count || *count < 1 || *count > 64) reject("GMS_SIM_DEVICES", devices, "1 to 64");
    settings.devices = static_cast<int>(*count);
  }
  read_size("GMS_SIM_VRAM", 1, settings.vram);
  read_size("GMS_SIM_CONTEXT_SIZE", 0, settings.context_size);
  read_size("GMS_SIM_GRANULARITY", 4096, settings.granularity);
  if ((settings.granularity & (settings.granularity - 1)) != 0) {
    reject("GMS_SIM_GRANULARITY", env("GMS_SIM_GRANULARITY"), "a power of two");
  }
  if (const char* faults = env("GMS_SIM_FAULTS")) settings.faults = parse_faults(faults);
  if (const char* latency = env("GMS_SIM_LATENCY")) settings.latencies = parse_latencies(latency);
  if (const char* quirks = env("GMS_SIM_QUIRKS")) settings.quirks = parse_quirks(quirks);
  if (const char* delay = env("GMS_SIM_FREE_DELAY")) {
    const auto duration = parse_duration(delay);
    if (!duration) reject("GMS_SIM_FREE_DELAY", delay, "a duration");
    settings.free_delay = *duration;
  }
  // Unlike the others, an empty value has a meaning: no devices.
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    settings.visible_devices = visible;
  }
  return settings;
}

}  // namespace fo::simcuda
