#include "route/worker/workers.h"

#include <algorithm>
#include <set>

namespace fo::route {

void Workers::add(const WorkerPtr& worker) {
  worker->number = ++numbers_;
  by_id_[worker->id] = worker;
  regroup(worker);
}

void Workers::leave_set(const WorkerPtr& worker) {
  const auto entry = set_of_worker_.find(worker->id);
  if (entry == set_of_worker_.end()) return;
  const auto set = sets_.find(entry->second);
  std::erase(set->second, worker);
  if (set->second.empty()) sets_.erase(set);
  set_of_worker_.erase(entry);
}

void Workers::forget_answers() {
  models_.reset();
  for_prefill_.reset();
  sets_of_.clear();
}

void Workers::regroup(const WorkerPtr& worker) {
  forget_answers();
  const SetKey key{worker->model, worker->card};
  const auto entry = set_of_worker_.find(worker->id);
  if (entry != set_of_worker_.end() && entry->second == key) return;
  leave_set(worker);
  // A worker joins a set once its model is known. One for prefill gets no requests.
  if (worker->model.empty() || worker->role == Role::kPrefill) return;
  sets_[key].push_back(worker);
  set_of_worker_[worker->id] = key;
}

void Workers::remove(const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  forget_answers();
  found->second->is_removed = true;
  leave_set(found->second);
  by_id_.erase(found);
}

bool Workers::lacks_pair(const Worker& worker) const {
  if (worker.role != Role::kDecode) return false;
  const auto cohort = [](const Worker& one) {
    return std::tie(one.model, one.name_space, one.kv_abi);
  };
  if (!for_prefill_) {
    for_prefill_.emplace();
    for (const auto& [id, other] : by_id_) {
      if (other->role == Role::kPrefill) (*for_prefill_)[cohort(*other)].push_back(other);
    }
  }
  const auto found = for_prefill_->find(cohort(worker));
  return found == for_prefill_->end() ||
         std::ranges::none_of(found->second,
                              [&](const WorkerPtr& other) { return worker.pairs_with(*other); });
}

bool Workers::lacks_prefill(const SetKey& key) const {
  const Set& members = set(key);
  return !members.empty() && std::ranges::all_of(members, [this](const WorkerPtr& member) {
    return lacks_pair(*member);
  });
}

WorkerPtr Workers::find(const std::string& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

const Workers::Set& Workers::set(const SetKey& key) const {
  static const Set kEmpty;
  const auto found = sets_.find(key);
  return found == sets_.end() ? kEmpty : found->second;
}

void Workers::set_weights(const std::string& model, std::optional<CardWeights> weights) {
  forget_answers();
  if (weights) {
    weights_[model] = *std::move(weights);
  } else {
    weights_.erase(model);
  }
}

const std::vector<std::string>& Workers::models() const {
  if (models_) return *models_;
  std::set<std::string> names;
  for (const auto& [key, workers] : sets_) {
    names.insert(key.model);
    for (const WorkerPtr& worker : workers) {
      names.insert(worker->other_models.begin(), worker->other_models.end());
    }
  }
  return models_.emplace(names.begin(), names.end());
}

const Workers::WeightedSets& Workers::sets_of(const std::string& model) const {
  // No entry is kept for a model that no worker serves, because clients choose the names.
  static const WeightedSets kNone;
  const auto known = sets_of_.find(model);
  if (known != sets_of_.end()) return known->second;
  WeightedSets found = find_sets_of(model);
  return found.empty() ? kNone : sets_of_[model] = std::move(found);
}

double Workers::weight_of(const SetKey& key) const {
  const WeightedSets& sets = sets_of(key.model);
  const auto found = std::ranges::find(sets, key, &WeightedSets::value_type::first);
  return found == sets.end() ? 0 : found->second;
}

Workers::WeightedSets Workers::find_sets_of(const std::string& model) const {
  WeightedSets found;
  const Worker* oldest = nullptr;
  std::size_t oldest_set = 0;
  const auto is_older = [](const Worker& a, const Worker& b) {
    return std::tie(a.may_have_ended, a.started_at) < std::tie(b.may_have_ended, b.started_at);
  };
  for (const auto& [key, workers] : sets_) {
    const Worker* first = nullptr;
    for (const WorkerPtr& worker : workers) {
      if (!worker->serves(model)) continue;
      if (first == nullptr || is_older(*worker, *first)) first = worker.get();
    }
    if (first == nullptr) continue;
    if (oldest == nullptr || is_older(*first, *oldest)) {
      oldest = first;
      oldest_set = found.size();
    }
    found.emplace_back(key, 0);
  }
  const auto entry = weights_.find(model);
  if (entry == weights_.end()) {
    if (!found.empty()) found[oldest_set].second = 1;
    return found;
  }
  for (auto& [key, weight] : found) {
    const auto at = entry->second.find(key.card);
    if (at != entry->second.end()) weight = at->second;
  }
  return found;
}

std::optional<SetKey> choose_set(const std::vector<std::pair<SetKey, double>>& sets,
                                 const std::function<bool(const SetKey&)>& is_usable,
                                 bool may_use_others, double draw) {
  double sum = 0;
  for (const auto& [key, weight] : sets) sum += is_usable(key) ? weight : 0;
  double rest = draw * sum;
  std::optional<SetKey> last;
  for (const auto& [key, weight] : sets) {
    if (!is_usable(key)) continue;
    if (sum <= 0) {
      if (may_use_others) return key;
      continue;
    }
    if (weight <= 0) continue;
    last = key;
    rest -= weight;
    if (rest < 0) return key;
  }
  return last;
}

}  // namespace fo::route
