#include "route/settings.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "json/object.h"
#include "plan/degradation.h"

namespace fo::route {
std::string to_json(const OperatorSettings& settings) {
  std::map<std::string, std::int64_t> poison;
  for (const auto& [hash, age] : settings.poison) poison[hash] = age.count();
  nlohmann::json object = {
      {"version", 1},     {"drained", settings.drained},     {"weights", settings.weights},
      {"level", nullptr}, {"responses", settings.responses}, {"poison", std::move(poison)}};
  if (settings.level) object["level"] = *settings.level;
  return fo::json::dump(object);
}

OperatorSettings read_settings(std::string_view text) {
  const auto what = [] { return "the settings of the router"; };
  return fo::json::read_object(text, kMaxSettingsBytes, what, [](const nlohmann::json& object) {
    OperatorSettings settings;
    object.at("drained").get_to(settings.drained);
    object.at("weights").get_to(settings.weights);
    for (const auto& [model, weights] : settings.weights) {
      for (const auto& [card, weight] : weights) {
        if (!(weight >= 0 && weight <= kMaxWeight)) throw fo::json::Misfit("a weight is invalid");
      }
    }
    if (const nlohmann::json* const level = fo::json::find(object, "level")) {
      settings.level = level->get<std::size_t>();
      if (!level->is_number_unsigned() || *settings.level >= plan::kDegradationLevels.size()) {
        throw fo::json::Misfit("the level is unknown");
      }
    }
    // Older routers do not write them.
    if (const nlohmann::json* const responses = fo::json::find(object, "responses")) {
      responses->get_to(settings.responses);
    }
    if (const nlohmann::json* const poison = fo::json::find(object, "poison")) {
      for (const auto& [hash, age] : poison->get<std::map<std::string, std::uint32_t>>()) {
        settings.poison[hash] = std::chrono::milliseconds(age);
      }
    }
    return settings;
  });
}

bool OperatorControl::set_drained(const std::string& worker_id, bool is_drained) {
  const WorkerPtr worker = router_.workers().find(worker_id);
  if (!worker) return false;
  if (is_drained) {
    settings_.drained.insert(worker_id);
  } else {
    settings_.drained.erase(worker_id);
  }
  worker->is_drained = is_drained;
  router_.on_change();
  return true;
}

void OperatorControl::set_weights(const std::string& model, CardWeights weights) {
  settings_.weights[model] = weights;
  router_.workers().set_weights(model, std::move(weights));
  router_.on_change();
}

void OperatorControl::set_level(std::optional<std::size_t> level) {
  router_.pin_level(level);
  settings_.level = level;
}

OperatorSettings OperatorControl::settings() const {
  const auto& in_force = router_.workers().weights();
  OperatorSettings settings = settings_;
  std::erase_if(settings.weights, [&](const auto& entry) {
    const auto found = in_force.find(entry.first);
    return found == in_force.end() || found->second != entry.second;
  });
  settings.responses = router_.response_ids().latest(kMaxHandedResponses);
  settings.poison = router_.poison().ages(time_now());
  return settings;
}

void OperatorControl::set_all(OperatorSettings settings) {
  if (settings.level) set_level(settings.level);
  for (const auto& [id, worker] : std::exchange(settings.responses, {})) {
    router_.response_ids().add(id, worker);
  }
  router_.poison().add(std::exchange(settings.poison, {}), time_now());
  settings_ = std::move(settings);
  for (const auto& [model, weights] : settings_.weights) {
    router_.workers().set_weights(model, weights);
  }
  for (const auto& [id, worker] : router_.workers().all()) on_new(worker);
  router_.on_change();
}

void OperatorControl::on_new(const WorkerPtr& worker) {
  worker->is_drained = settings_.drained.contains(worker->id);
}

void OperatorControl::on_removed(const WorkerPtr& worker) { settings_.drained.erase(worker->id); }

}  // namespace fo::route
