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
#include "json/object.h"

namespace fo::canary {
namespace {

using fo::json::flag_in;
using fo::json::Misfit;
using fo::json::needed_number;
using fo::json::needed_text;
using nlohmann::json;
using text::WallTime;

constexpr int kStateVersion = 1;
// Any id that may be part of the key of a record may be that of a worker.
constexpr char kAnyWriter[] = "any";

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

SavedWorker read_worker(const json& object) {
  SavedWorker worker;
  WorkerHealth::Saved& health = worker.health;
  const auto state = fleet::parse_health_state(needed_text(object, "health"));
  if (!state) throw Misfit("health: unknown");
  health.state = *state;
  health.failed_probations = static_cast<unsigned>(
      std::min<std::uint64_t>(needed_number(object, "failed_probations"), 100));
  health.since = fleet::needed_time(object, "since");
  health.cause.reason = needed_text(object, "reason");
  if (fo::json::find(object, "cool_down_until") != nullptr) {
    health.cool_down_until = fleet::needed_time(object, "cool_down_until");
  }
  health.cause.evidence = fleet::evidence_in(object);
  worker.owes_answer = flag_in(object, "owes_answer");
  worker.owes_sampler = flag_in(object, "owes_sampler");
  if (fo::json::find(object, "gone_since") != nullptr) {
    worker.gone_since = fleet::needed_time(object, "gone_since");
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

json to_json(const Baseline& baseline) {
  return {{"average", baseline.average}, {"count", baseline.count}};
}

SavedWorkers parse_state(std::string_view text, const std::string& path) {
  const auto read = [](const json& object) {
    const json* const version = fo::json::find(object, "version");
    const json* const list = fo::json::find(object, "workers");
    if (version == nullptr || *version != kStateVersion || list == nullptr || !list->is_object()) {
      throw Misfit("not the state of a canary");
    }
    SavedWorkers workers;
    for (const auto& [id, worker] : list->items()) {
      if (!fleet::is_verdict_key(fleet::verdict_key(id, kAnyWriter))) {
        throw Misfit(base::quoted(id) + " is not the id of a worker");
      }
      try {
        workers[id] = read_worker(worker);
      } catch (const Misfit& misfit) {
        throw Misfit("worker " + base::quoted(id) + ": " + misfit.what());
      }
    }
    return workers;
  };
  const auto what = [&] { return "read " + base::quoted(path); };
  return fo::json::read_object(text, kMaxStateBytes, what, read, base::ExitStatus::kBadData);
}

}  // namespace fo::canary
