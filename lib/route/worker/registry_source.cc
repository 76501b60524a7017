#include "route/worker/registry_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "fleet/record/instance.h"
#include "fleet/registry/follow.h"
#include "fleet/registry/key.h"
#include "fleet/state_file.h"
#include "json/object.h"
#include "loop/pause.h"
#include "net/address.h"
#include "os/log.h"

namespace fo::route {
namespace {

using boost::asio::awaitable;
using fleet::RegistryChange;

constexpr std::string_view kInstances = RegistrySource::kPrefixes[0];
constexpr std::string_view kWeights = RegistrySource::kPrefixes[1];
constexpr std::string_view kRouters = RegistrySource::kPrefixes[2];
constexpr std::string_view kVerdicts = RegistrySource::kPrefixes[3];
constexpr std::string_view kCards = RegistrySource::kPrefixes[4];
constexpr base::Duration kExpiryInterval = std::chrono::milliseconds(500);
// How long a router that has vanished without a deregistration counts.
constexpr base::Duration kRouterVanished = std::chrono::minutes(2);
constexpr std::string_view kEndpoint = "generate";

text::WallTime wall_now() { return std::chrono::system_clock::now(); }

// nullopt if the endpoint is not that of a worker.
std::optional<Role> role_of(const fleet::EndpointId& id) {
  if (id.endpoint != kEndpoint) return std::nullopt;
  if (id.component == "worker") return Role::kWhole;
  if (id.component == "worker-prefill") return Role::kPrefill;
  return id.component == "worker-decode" ? std::optional(Role::kDecode) : std::nullopt;
}

// A record that is no object counts as an empty one.
nlohmann::json read_weights(const std::string& record) {
  return fo::json::find_object(record, fleet::kMaxRecordBytes).value_or(nlohmann::json::object());
}

// Other members are left out.
CardWeights weights_in(const nlohmann::json& record) {
  CardWeights weights;
  for (const auto& [card, weight] : record.items()) {
    if (weight.is_number() && card != "version") {
      weights[card] = std::clamp(weight.get<double>(), 0.0, kMaxWeight);
    }
  }
  return weights;
}

}  // namespace

awaitable<CardWeights> write_weight(fleet::Registry& registry, std::string model, std::string card,
                                    CardWeights weights, base::Deadline deadline) {
  std::string key = std::string(kWeights) + fleet::key_segment(model);
  CardWeights written;
  const fleet::Edit set_one = [&](const std::string& text) {
    nlohmann::json object = text.empty() ? nlohmann::json(weights) : read_weights(text);
    object[card] = weights.at(card);
    written = weights_in(object);
    return fo::json::dump(object);
  };
  co_await registry.edit_or_create(key, set_one, deadline);
  co_return written;
}

RegistrySource::RegistrySource(SourceOptions options, Workers& workers, Events events)
    : options_(std::move(options)), workers_(workers), events_(std::move(events)) {}

void RegistrySource::set_options(SourceOptions options) {
  options_ = std::move(options);
  for (const auto& [id, worker] : workers_.all()) worker->health.set_rules(options_.health);
  // All records that may not be used any more are left out before a worker uses another of its own.
  std::map<std::string, WorkerPtr> changed;
  const std::map<std::string, std::string> used = instances_;
  for (const auto& [key, text] : used) {
    const WorkerPtr worker = workers_.find(fleet::last_segment(key));
    if (!worker || may_use({key, text})) continue;
    unused_[key] = {.text = text, .is_stale = worker->is_stale};
    changes_ += instances_.erase(key);
    changed[worker->id] = worker;
  }
  for (const auto& [id, worker] : changed) {
    const bool is_stale = worker->is_stale;
    use_other_record(id);
    worker->is_stale = is_stale;
  }
  for (const auto& [key, text] : instances_) {
    if (const WorkerPtr worker = workers_.find(fleet::last_segment(key))) {
      worker->set_url(worker->url, net::parse_url(worker->url), options_.tls,
                      options_.allowed.networks());
    }
  }
  const std::map<std::string, Unused> unused = unused_;
  for (const auto& [key, record] : unused) {
    RegistryChange change{.kind = RegistryChange::Kind::kPut,
                          .record = {.key = key, .text = record.text}};
    apply(change);
    change.kind = RegistryChange::Kind::kStale;
    if (record.is_stale) apply(change);
  }
  update_slots();
  events_.on_change();
}

bool RegistrySource::is_ours(const std::string& name_space) const {
  return std::ranges::any_of(options_.namespaces, [&](const fleet::NamespacePattern& one) {
    return one.matches(name_space);
  });
}

bool RegistrySource::may_use(const fleet::Record& record) const {
  const auto endpoint = fleet::endpoint_of(record.key);
  if (!endpoint || !is_ours(endpoint->name_space)) return false;
  try {
    const std::string url = fleet::decode_instance(record).url;
    http::make_origin(options_.allowed.check(url), options_.tls);
    return true;
  } catch (const base::Error&) {
    return false;
  }
}

void RegistrySource::apply(const RegistryChange& change) {
  const fleet::Record& record = change.record;
  const std::string id = fleet::last_segment(record.key);
  try {
    switch (change.kind) {
      case RegistryChange::Kind::kPut:
        if (record.key.starts_with(kInstances)) put_instance(record);
        if (record.key.starts_with(kWeights)) put_weights(record);
        if (record.key.starts_with(kVerdicts)) put_verdict(record);
        if (record.key.starts_with(kCards)) put_card(record);
        if (record.key.starts_with(kRouters)) put_router(id);
        break;
      case RegistryChange::Kind::kStale:
        if (const auto router = routers_.find(id);
            record.key.starts_with(kRouters) && router != routers_.end() && !router->second) {
          router->second = base::Deadline::Clock::now();
        }
        if (const WorkerPtr worker = workers_.find(id); worker && instances_.contains(record.key)) {
          worker->is_stale = true;
          events_.on_change();
        }
        if (const auto unused = unused_.find(record.key); unused != unused_.end()) {
          unused->second.is_stale = true;
        }
        break;
      case RegistryChange::Kind::kGone:
        unused_.erase(record.key);
        if (record.key.starts_with(kInstances)) end_instance(record.key);
        if (record.key.starts_with(kWeights)) remove_weights(record.key);
        if (record.key.starts_with(kRouters) && routers_.erase(id) > 0) share_slots();
        if (record.key.starts_with(kVerdicts)) remove_verdict(record.key);
        if (record.key.starts_with(kCards)) changes_ += card_texts_.erase(record.key);
        break;
      case RegistryChange::Kind::kListed:
        ++listed_;
        events_.on_change();
        break;
    }
  } catch (const base::Error& error) {
    os::log(os::LogLevel::kWarning, "{}", error.what());
  }
}

void RegistrySource::put_instance(const fleet::Record& record) {
  const auto endpoint = fleet::endpoint_of(record.key);
  const std::optional<Role> role = endpoint ? role_of(*endpoint) : std::nullopt;
  if (!role) return;
  unused_[record.key] = {.text = record.text};
  if (!is_ours(endpoint->name_space)) return;
  const fleet::Instance instance = fleet::decode_instance(record);
  if (instance.life == fleet::Life::kGone) {
    unused_.erase(record.key);
    end_instance(record.key);
    return;
  }
  const net::Url url = options_.allowed.check(instance.url);
  WorkerPtr worker = workers_.find(instance.id);
  const bool is_new = worker == nullptr;
  if (is_new) {
    worker = std::make_shared<Worker>(instance.id, fleet::Health(options_.health));
    worker->name = instance.id;
    worker->model = instance.model;
  }
  worker->set_url(instance.url, url, options_.tls, options_.allowed.networks());
  unused_.erase(record.key);
  save_record(instances_, record);
  worker->life = instance.life;
  worker->drains_itself = instance.life == fleet::Life::kDraining && !instance.is_drained;
  worker->is_stale = false;
  worker->role = *role;
  worker->reports_model = instance.model.empty();
  worker->name_space = endpoint->name_space;
  worker->kv_abi = instance.kv_abi;
  // A new card may not be known yet.
  if (worker->card != instance.card) worker->facts.reset();
  worker->card = instance.card;
  if (const auto card = cards_.find(instance.card); card != cards_.end()) {
    worker->facts = card->second;
  }
  worker->kv_tokens = instance.kv_tokens;
  worker->started_at = instance.started_at;
  worker->group = instance.labels.contains("group") ? instance.labels.at("group") : std::string();
  slots_of_record_[instance.id] = instance.slots;
  update_verdict(*worker, wall_now());
  if (is_new) {
    workers_.add(worker);
  } else {
    if (!instance.model.empty()) worker->model = instance.model;
    workers_.regroup(worker);
  }
  update_slots();
  is_new ? events_.on_new(worker) : events_.on_change();
}

void RegistrySource::put_weights(const fleet::Record& record) {
  workers_.set_weights(fleet::text_of_segment(fleet::last_segment(record.key)),
                       weights_in(read_weights(record.text)));
  unlisted_.erase(record.key);
  save_record(weights_, record);
  events_.on_change();
}

void RegistrySource::remove_weights(const std::string& key) {
  workers_.set_weights(fleet::text_of_segment(fleet::last_segment(key)), std::nullopt);
  changes_ += weights_.erase(key);
  events_.on_change();
}

void RegistrySource::put_card(const fleet::Record& record) {
  const auto card = std::make_shared<const fleet::Card>(fleet::parse_card(record.text, record.key));
  const std::string checksum = fleet::text_of_segment(fleet::last_segment(record.key));
  if (fleet::checksum(*card) != checksum) {
    throw base::Error(base::ExitStatus::kBadData,
                      "record " + base::quoted(record.key) + ": the card of another checksum");
  }
  cards_[checksum] = card;
  save_record(card_texts_, record);
  for (const auto& [id, worker] : workers_.all()) {
    if (worker->card == checksum) worker->facts = card;
  }
}

void RegistrySource::put_verdict(const fleet::Record& record) {
  const fleet::Verdict& verdict = verdicts_.put(record);
  unlisted_.erase(record.key);
  if (verdict.is_conviction()) {
    save_record(convictions_, record);
  } else {
    changes_ += convictions_.erase(record.key);
  }
  on_verdict(verdict.id);
}

void RegistrySource::remove_verdict(const std::string& key) {
  verdicts_.remove(key);
  changes_ += convictions_.erase(key);
  on_verdict(std::string(fleet::id_of(key)));
}

void RegistrySource::on_verdict(const std::string& id) {
  const WorkerPtr worker = workers_.find(id);
  if (worker && update_verdict(*worker, wall_now())) events_.on_change();
}

// True if that changes which requests the worker gets.
bool RegistrySource::update_verdict(Worker& worker, text::WallTime now) {
  const fleet::JointVerdict before = std::exchange(worker.verdict, verdicts_.on(worker.id, now));
  const fleet::JointVerdict& after = worker.verdict;
  if (after.health != before.health && (before.is_adverse() || after.is_adverse())) {
    const auto level = after.is_adverse() ? os::LogLevel::kWarning : os::LogLevel::kInfo;
    os::log(level, "worker {}: verdict {}{}", base::quoted(worker.name), fleet::to_string(after),
            after.reason.empty() ? "" : ": " + after.reason);
  }
  return after.weight != before.weight || after.is_conviction() != before.is_conviction();
}

void RegistrySource::on_tick(text::WallTime now, TimePoint steady) {
  bool has_changed = false;
  for (const auto& [id, worker] : workers_.all()) has_changed |= update_verdict(*worker, now);
  if (has_changed) events_.on_change();
  forget_routers(steady);
}

awaitable<void> RegistrySource::run_periodic_tasks() {
  for (;;) {
    co_await loop::pause_for(kExpiryInterval);
    on_tick(wall_now(), base::Deadline::Clock::now());
  }
}

void RegistrySource::add(const WorkerPtr& worker) {
  slots_of_record_[worker->id] = std::nullopt;
  workers_.add(worker);
  update_slots();
  events_.on_new(worker);
}

void RegistrySource::remove(const std::string& id) {
  changes_ += std::erase_if(
      instances_, [&](const auto& entry) { return fleet::last_segment(entry.first) == id; });
  slots_of_record_.erase(id);
  const WorkerPtr worker = workers_.find(id);
  if (!worker) return;
  workers_.remove(id);
  events_.on_removed(worker);
  events_.on_change();
}

void RegistrySource::end_instance(const std::string& key) {
  const auto ended = instances_.find(key);
  if (ended == instances_.end()) return;
  instances_.erase(ended);
  ++changes_;
  use_other_record(fleet::last_segment(key));
}

void RegistrySource::use_other_record(const std::string& id) {
  const auto other = std::ranges::find_if(
      instances_, [&](const auto& entry) { return fleet::last_segment(entry.first) == id; });
  if (other == instances_.end()) return remove(id);
  const fleet::Record record{other->first, other->second};
  put_instance(record);
}

void RegistrySource::put_router(const std::string& id) {
  const auto [router, is_new] = routers_.try_emplace(id);
  router->second.reset();
  if (is_new) share_slots();
}

// A router that has vanished may still send requests, so it keeps its share for a time. While the
// registry is out of reach, all routers have vanished, and probably live.
void RegistrySource::forget_routers(TimePoint now) {
  const bool is_in_reach =
      std::ranges::any_of(routers_, [](const auto& router) { return !router.second; });
  if (!is_in_reach) return;
  const std::size_t forgotten = std::erase_if(routers_, [&](const auto& router) {
    return router.second && now - *router.second >= kRouterVanished;
  });
  if (forgotten > 0) share_slots();
}

// To be called when another router has registered, or its record was removed.
void RegistrySource::share_slots() {
  update_slots();
  events_.on_change();
}

void RegistrySource::update_slots() {
  const std::uint64_t routers =
      options_.routers.value_or(std::max<std::uint64_t>(routers_.size(), 1));
  for (const auto& [id, slots] : slots_of_record_) {
    const WorkerPtr worker = workers_.find(id);
    if (worker) {
      worker->slots = std::max<std::uint64_t>(slots.value_or(options_.slots) / routers, 1);
    }
  }
}

awaitable<void> RegistrySource::follow(fleet::Registry& registry, std::string prefix) {
  const auto on_change = [this, prefix](const RegistryChange& change) {
    apply(change);
    if (change.kind == RegistryChange::Kind::kListed) forget_unlisted(prefix);
  };
  return fleet::follow(registry, prefix, on_change);
}

void RegistrySource::forget_unlisted(const std::string& prefix) {
  const std::set<std::string> unlisted = unlisted_;
  for (const std::string& key : unlisted) {
    if (!key.starts_with(prefix)) continue;
    unlisted_.erase(key);
    apply({.kind = RegistryChange::Kind::kGone, .record = {.key = key, .text = {}}});
  }
}

void RegistrySource::save_record(std::map<std::string, std::string>& saved,
                                 const fleet::Record& record) {
  if (std::exchange(saved[record.key], record.text) != record.text) ++changes_;
}

std::string RegistrySource::save() const {
  return fo::json::dump({{"version", 1},
                         {"cards", card_texts_},
                         {"weights", weights_},
                         {"instances", instances_},
                         {"convictions", convictions_}});
}

void RegistrySource::load(const std::string& text) {
  const auto object = fo::json::find_object(text, kMaxSavedBytes);
  const nlohmann::json* instances = object ? fo::json::find(*object, "instances") : nullptr;
  if (instances == nullptr || !instances->is_object()) {
    throw base::Error(base::ExitStatus::kBadData, "not a saved listing of workers");
  }
  // The instances last: their workers are convicted, and have their weights, from the start.
  for (const char* const kind : {"cards", "weights", "convictions", "instances"}) {
    const nlohmann::json* const records = fo::json::find(*object, kind);
    if (records == nullptr) continue;
    for (const auto& [key, value] : records->items()) {
      if (!value.is_string()) continue;
      RegistryChange change{.kind = RegistryChange::Kind::kPut,
                            .record = {.key = key, .text = value.get<std::string>()}};
      apply(change);
      if (key.starts_with(kVerdicts) || key.starts_with(kWeights)) {
        unlisted_.insert(key);
      } else if (key.starts_with(kInstances)) {
        change.kind = RegistryChange::Kind::kStale;
        apply(change);
      }
    }
  }
}

void RegistrySource::load_file(const std::string& path) {
  fleet::load_state(path, kMaxSavedBytes, [this](const std::string& text) { load(text); });
}

awaitable<void> RegistrySource::save_periodically(std::string path) const {
  const auto changed = [this, saved = changes_]() mutable -> std::optional<std::string> {
    if (!is_listed() || changes_ == saved) return std::nullopt;
    saved = changes_;
    return save();
  };
  return fleet::keep_state(std::move(path), changed);
}

}  // namespace fo::route
