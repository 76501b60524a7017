#include "canary/judge/state_file.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "json/dump.h"
#include "json/object.h"

namespace fo::canary {
namespace {

using fo::json::Misfit;
using nlohmann::json;
using text::WallTime;

constexpr int kStateVersion = 1;

json to_json(const Baseline& baseline) {
  return {{"average", baseline.average}, {"count", baseline.count}};
}

Baseline baseline_in(const json& object, const char* name) {
  const json* const value = fo::json::find(object, name);
  if (value == nullptr) return {};
  const json* const average = fo::json::find(*value, "average");
  const json* const count = fo::json::find(*value, "count");
  const bool is_valid = average != nullptr && average->is_number() && count != nullptr &&
                        count->is_number_unsigned() && average->get<double>() >= 0;
  if (!is_valid) throw Misfit(std::string(name) + " is not a baseline");
  return {.average = average->get<double>(), .count = count->get<std::uint64_t>()};
}

json to_json(const SavedWorker& worker) {
  const WorkerHealth::Saved& health = worker.health;
  json object = {{"health", fleet::to_string(health.state)},
                 {"failed_probations", health.failed_probations},
                 {"since", text::format_time(health.since)},
                 {"reason", health.cause.reason},
                 {"answer", to_json(worker.baselines.answer)},
                 {"first_token", to_json(worker.baselines.first_token)}};
  if (health.cool_down_until) {
    object["cool_down_until"] = text::format_time(*health.cool_down_until);
  }
  if (worker.owes_answer) object["owes_answer"] = true;
  if (worker.owes_sampler) object["owes_sampler"] = true;
  if (worker.gone_since) object["gone_since"] = text::format_time(*worker.gone_since);
  if (health.cause.evidence) object["evidence"] = fleet::to_json(*health.cause.evidence);
  return object;
}

std::string saved_text(const json& object, const char* name) {
  const json* const value = fo::json::find(object, name);
  if (value == nullptr || !value->is_string()) throw Misfit(std::string(name) + " is not a text");
  return value->get<std::string>();
}

std::uint64_t saved_number(const json& object, const char* name) {
  const json* const value = fo::json::find(object, name);
  if (value == nullptr || !value->is_number_unsigned()) {
    throw Misfit(std::string(name) + " is not a whole number");
  }
  return value->get<std::uint64_t>();
}

WallTime saved_time(const json& object, const char* name) {
  const std::optional<WallTime> time = text::parse_time(saved_text(object, name));
  if (!time) throw Misfit(std::string(name) + " is not a time");
  return *time;
}

// False if the object does not have it.
bool saved_flag(const json& object, const char* name) {
  const json* const value = fo::json::find(object, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) throw Misfit(std::string(name) + " is neither true nor false");
  return value->get<bool>();
}

SavedWorker read_worker(const json& object) {
  SavedWorker worker;
  WorkerHealth::Saved& health = worker.health;
  const auto state = fleet::parse_health_state(saved_text(object, "health"));
  if (!state) throw Misfit("health is unknown");
  health.state = *state;
  health.failed_probations = static_cast<unsigned>(
      std::min<std::uint64_t>(saved_number(object, "failed_probations"), 100));
  health.since = saved_time(object, "since");
  health.cause.reason = saved_text(object, "reason");
  if (fo::json::find(object, "cool_down_until") != nullptr) {
    health.cool_down_until = saved_time(object, "cool_down_until");
  }
  if (const json* const evidence = fo::json::find(object, "evidence")) {
    health.cause.evidence = fleet::Evidence{.canary = saved_text(*evidence, "canary"),
                                            .position = saved_number(*evidence, "position"),
                                            .expected = saved_text(*evidence, "expected"),
                                            .got = saved_text(*evidence, "got")};
  }
  worker.owes_answer = saved_flag(object, "owes_answer");
  worker.owes_sampler = saved_flag(object, "owes_sampler");
  if (fo::json::find(object, "gone_since") != nullptr) {
    worker.gone_since = saved_time(object, "gone_since");
  }
  worker.baselines = {.answer = baseline_in(object, "answer"),
                      .first_token = baseline_in(object, "first_token")};
  return worker;
}

}  // namespace

void forget_gone(SavedWorkers& workers, WallTime now) {
  // A clock that was set back must not keep a worker for longer.
  for (auto& [id, worker] : workers) {
    worker.gone_since = std::min(worker.gone_since.value_or(now), now);
  }
  const auto is_convicted = [](const SavedWorker& worker) {
    return worker.health.state == fleet::HealthState::kConvicted;
  };
  std::erase_if(workers, [&](const auto& entry) {
    return !is_convicted(entry.second) && *entry.second.gone_since + kKeptFor < now;
  });
  if (workers.size() <= kMaxGone) return;
  std::vector<std::tuple<bool, WallTime, std::string>> in_order;
  for (const auto& [id, worker] : workers) {
    in_order.emplace_back(is_convicted(worker), *worker.gone_since, id);
  }
  std::sort(in_order.begin(), in_order.end());
  in_order.resize(workers.size() - kMaxGone);
  for (const auto& [comes_last, gone_since, id] : in_order) workers.erase(id);
}

std::string encode(const SavedWorkers& workers) {
  json list = json::object();
  for (const auto& [id, worker] : workers) list[id] = to_json(worker);
  return fo::json::dump({{"version", kStateVersion}, {"workers", std::move(list)}});
}

SavedWorkers parse_state(std::string_view text, const std::string& path) {
  SavedWorkers workers;
  try {
    const json object = fo::json::parse_object(text, kMaxStateBytes);
    const json* const version = fo::json::find(object, "version");
    const json* const list = fo::json::find(object, "workers");
    if (version == nullptr || *version != kStateVersion || list == nullptr || !list->is_object()) {
      throw Misfit("not the state of a canary");
    }
    for (const auto& [id, worker] : list->items()) {
      if (!fleet::is_instance_id(id)) throw Misfit(base::quoted(id) + " is not the id of a worker");
      try {
        workers[id] = read_worker(worker);
      } catch (const Misfit& misfit) {
        throw Misfit("worker " + base::quoted(id) + ": " + misfit.what());
      }
    }
  } catch (const Misfit& misfit) {
    throw base::Error(base::ExitStatus::kBadData,
                      "read " + base::quoted(path) + ": " + misfit.what());
  }
  return workers;
}

}  // namespace fo::canary
