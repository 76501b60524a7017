// All workers that the router knows, in sets: the workers of a set have the same model and the same
// card, so that each of them gives the same answer. No I/O; time is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "route/worker/worker.h"

namespace fo::route {

/// A model and the checksum of a card; without cards, the model alone.
struct SetKey {
  std::string model;
  std::string card;
  auto operator<=>(const SetKey&) const = default;
};

/// The weights of a model's sets by the checksums of their cards.
using CardWeights = std::map<std::string, double>;
inline constexpr double kMaxWeight = 1e6;

class Workers {
 public:
  using Set = std::vector<WorkerPtr>;

  /// Adds a worker, whose id is new.
  void add(const WorkerPtr& worker);
  /// To be called after a change of the worker: puts it into the set of its model and card.
  void regroup(const WorkerPtr& worker);
  /// Marks the worker as removed. It leaves its set at once.
  void remove(const std::string& id);
  [[nodiscard]] WorkerPtr find(const std::string& id) const;
  [[nodiscard]] const std::map<std::string, WorkerPtr>& all() const { return by_id_; }
  [[nodiscard]] const std::map<SetKey, Set>& sets() const { return sets_; }
  /// The workers of a set; empty if there are none.
  [[nodiscard]] const Set& set(const SetKey& key) const;
  /// Whether the worker is for decode, and has none for prefill to pair with.
  [[nodiscard]] bool lacks_pair(const Worker& worker) const;
  /// Whether all workers of the set lack a pair; false if the set is empty.
  [[nodiscard]] bool lacks_prefill(const SetKey& key) const;

  /// Sets the weights of a model's sets; nullopt removes them.
  void set_weights(const std::string& model, std::optional<CardWeights> weights);
  [[nodiscard]] const std::map<std::string, CardWeights>& weights() const { return weights_; }

  /// Every name by which a worker of a set serves a model, sorted. Valid until a change.
  [[nodiscard]] const std::vector<std::string>& models() const;
  /// The sets with a worker that serves `model`, each with its weight. Without an entry of weights,
  /// the set with the oldest worker has weight 1, and the others 0; workers that may have ended
  /// are compared only if all may have. The result is valid until a change.
  using WeightedSets = std::vector<std::pair<SetKey, double>>;
  [[nodiscard]] const WeightedSets& sets_of(const std::string& model) const;
  /// The weight of a set among those of its model; 0 if the set does not exist.
  [[nodiscard]] double weight_of(const SetKey& key) const;

 private:
  void leave_set(const WorkerPtr& worker);
  void forget_answers();
  [[nodiscard]] WeightedSets find_sets_of(const std::string& model) const;

  std::map<std::string, WorkerPtr> by_id_;
  std::map<SetKey, Set> sets_;
  std::map<std::string, SetKey> set_of_worker_;
  std::map<std::string, CardWeights> weights_;
  std::uint64_t numbers_ = 0;
  // Caches, because every request needs these, and workers change rarely.
  mutable std::optional<std::vector<std::string>> models_;
  mutable std::map<std::string, WeightedSets> sets_of_;
  /// The workers for prefill, by the values that a worker for decode must share with them.
  using Cohort = std::tuple<std::string, std::string, std::string>;
  mutable std::optional<std::map<Cohort, std::vector<WorkerPtr>, std::less<>>> for_prefill_;
};

/// The set for a request: drawn by weight among those for which `is_usable`; `draw` is uniform in
/// [0, 1). If none of the weighted ones is usable and `may_use_others`, the first usable one of
/// weight 0; nullopt if there is none.
std::optional<SetKey> choose_set(const std::vector<std::pair<SetKey, double>>& sets,
                                 const std::function<bool(const SetKey&)>& is_usable,
                                 bool may_use_others, double draw);

}  // namespace fo::route
