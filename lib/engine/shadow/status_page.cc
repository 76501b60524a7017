#include "engine/shadow/status_page.h"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "json/object.h"

namespace fo::engine {
namespace {

using fo::json::or_null;
using nlohmann::json;

json failover_json(const Failover& failover) {
  json phases = json::object();
  for (const auto& [phase, took] : failover.phases) {
    phases[std::string(phase_name(phase))] = std::chrono::duration<double>(took).count();
  }
  return {{"generation", failover.generation},
          {"active_at", failover.active_at},
          {"phases", std::move(phases)}};
}

json gms_json(const std::vector<GmsPlace>& places, const GmsWatch& gms) {
  json all = json::array();
  for (std::size_t i = 0; i < places.size(); ++i) {
    all.push_back({{"socket", places[i].socket},
                   {"device", places[i].device.value()},
                   {"tag", places[i].tag},
                   {"connected", gms.is_up(i)},
                   {"memory_layout_hash", gms.layout_hash(i).value()}});
  }
  return all;
}

}  // namespace

std::string status_json(const ShadowOptions& options, const LifeRecord& life, const GmsWatch& gms,
                        const StatusFacts& facts) {
  json object{{"id", options.id},
              {"state", state_name(life.state())},
              {"since", life.since()},
              {"pid", ::getpid()},
              {"engine_pid", or_null(facts.engine != 0, facts.engine)},
              {"generation", or_null(life.generation() != 0, life.generation())},
              {"switching", facts.switching},
              {"url", options.driver.url},
              {"publish", or_null(!options.publish.empty(), options.publish)},
              {"port", or_null(facts.port != 0, facts.port)},
              {"gms", gms_json(options.gms, gms)},
              {"gpu_free", facts.gpu_free},
              {"last_failover", nullptr}};
  if (life.last_failover()) object["last_failover"] = failover_json(*life.last_failover());
  return fo::json::dump(object);
}

}  // namespace fo::engine
