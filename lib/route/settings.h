// The state of a router that is in no file or registry: the settings that an operator made with
// fo-route ctl, the workers of responses, and the requests that are refused because engines died of
// them. The next router takes it over.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strong.h"
#include "route/router.h"
#include "route/worker/workers.h"

namespace fo::route {

struct OperatorSettings {
  /// Ids of workers that get no new requests.
  std::set<std::string> drained = {};
  /// Weights of the sets of each model.
  std::map<std::string, CardWeights> weights = {};
  /// The level of degradation; nullopt: automatic.
  std::optional<std::size_t> level = {};
  /// The latest responses of /v1/responses, each with the id of the worker that made it.
  std::vector<std::pair<std::string, std::string>> responses = {};
  PoisonBodies::Ages poison = {};
  friend bool operator==(const OperatorSettings&, const OperatorSettings&) = default;
};

/// Maximum number of responses for the next router. So many are written in a few milliseconds.
inline constexpr std::size_t kMaxHandedResponses = 20'000;
/// Limit of the settings as JSON.
inline constexpr base::ByteCount kMaxSettingsBytes = 16 * base::kMiB;

/// {"version": 1, "drained": [ID...], "weights": {MODEL: {CARD: WEIGHT}}, "level": N or null,
/// "responses": [[ID, WORKER]...], "poison": {HASH: MILLISECONDS}}, on one line.
std::string to_json(const OperatorSettings& settings);
/// Throws kProtocol for another text.
OperatorSettings read_settings(std::string_view text);

/// Applies settings to a router, and keeps them for the next one.
class OperatorControl {
 public:
  /// The router outlives this object.
  explicit OperatorControl(Router& router) : router_(router) {}

  /// False if the worker is unknown.
  bool set_drained(const std::string& worker_id, bool is_drained);
  /// Sets the weights of all sets of a model.
  void set_weights(const std::string& model, CardWeights weights);
  /// Throws what Router::pin_level throws.
  void set_level(std::optional<std::size_t> level);

  /// Returns the settings in force: a record of the registry replaces weights.
  [[nodiscard]] OperatorSettings settings() const;
  /// Applies the settings to a new router. Workers that are not known yet are drained as soon as
  /// they are.
  void set_all(OperatorSettings settings);

  /// To be called when the router has a new worker, or has removed one.
  void on_new(const WorkerPtr& worker);
  void on_removed(const WorkerPtr& worker);

 private:
  Router& router_;
  OperatorSettings settings_;
};

}  // namespace fo::route
