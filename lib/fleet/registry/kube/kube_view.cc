#include "fleet/registry/kube/kube_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "fleet/registry/key.h"
#include "os/log.h"

namespace fo::fleet {

KubeView::KubeView(std::string registry, std::string prefix,
                   std::function<void(const RegistryChange&)> on_change)
    : registry_(std::move(registry)),
      prefix_(std::move(prefix)),
      on_change_(std::move(on_change)) {}

void KubeView::put_slice(const kube::Object& object) {
  try {
    EndpointSlice slice = read_endpoint_slice(object);
    if (!slice.fault.empty()) {
      warn("an endpoint of EndpointSlice " + base::quoted(object.name) +
           " is ignored: " + slice.fault);
    }
    slices_[object.name] = std::move(slice);
    offer_slice(object.name);
  } catch (const base::Error& error) {
    warn(error.what());
  }
}

void KubeView::remove_slice(const std::string& name) {
  if (slices_.erase(name) > 0) offer("EndpointSlice/" + name, {});
}

void KubeView::put_card(const kube::Object& object) {
  try {
    set_card(object.name, read_service_card(object));
  } catch (const base::Error& error) {
    warn(error.what());
  }
}

void KubeView::remove_card(const std::string& name) { set_card(name, std::nullopt); }

void KubeView::set_card(const std::string& name, std::optional<ServiceCard> card) {
  const std::string owner = "ConfigMap/" + name;
  std::vector<Offer> offers;
  std::set<std::string> services;
  if (card) {
    offers.push_back(
        {"cards/" + checksum(card->card), {false, false, owner}, to_json(card->card).dump()});
    services.insert(card->service);
  }
  if (const auto before = cards_.find(name); before != cards_.end()) {
    services.insert(before->second.service);
    cards_.erase(before);
  }
  if (card) cards_.emplace(name, std::move(*card));
  offer(owner, std::move(offers));
  for (const auto& [slice_name, slice] : slices_) {
    if (services.contains(slice.service)) offer_slice(slice_name);
  }
}

void KubeView::set_unreachable(bool is_unreachable) {
  if (std::exchange(is_unreachable_, is_unreachable) == is_unreachable) return;
  for (const auto& [key, texts] : offers_) refresh(key);
}

void KubeView::warn(const std::string& reason) const {
  os::log(os::LogLevel::kWarning, "registry {}: {}", base::quoted(registry_), reason);
}

void KubeView::offer_slice(const std::string& name) {
  const EndpointSlice& slice = slices_.at(name);
  const auto card = std::find_if(cards_.begin(), cards_.end(), [&](const auto& one) {
    return one.second.service == slice.service;
  });
  const std::string owner = "EndpointSlice/" + name;
  const Card described = card == cards_.end() ? Card() : card->second.card;
  const std::string sum = card == cards_.end() ? "" : checksum(described);
  std::vector<Offer> offers;
  for (const SliceWorker& worker : slice.workers) {
    Instance instance = worker.instance;
    instance.model = described.name;
    instance.card = sum;
    instance.kv_abi = described.kv_abi;
    offers.push_back({worker.key, {!worker.is_ready, slice.is_ipv6, owner}, encode(instance)});
  }
  offer(owner, std::move(offers));
}

void KubeView::offer(const std::string& owner, std::vector<Offer> offers) {
  std::set<std::string> changed = std::exchange(keys_[owner], {});
  for (const std::string& key : changed) {
    std::erase_if(offers_[key], [&](const auto& one) { return one.first.owner == owner; });
  }
  for (Offer& one : offers) {
    if (!one.key.starts_with(prefix_)) continue;
    if (one.text.size() > kMaxRecordBytes) {
      warn("record " + base::quoted(one.key) + " is ignored: too long");
      continue;
    }
    offers_[one.key].insert_or_assign(std::move(one.rank), std::move(one.text));
    keys_[owner].insert(one.key);
    changed.insert(std::move(one.key));
  }
  if (keys_[owner].empty()) keys_.erase(owner);
  for (const std::string& key : changed) {
    if (offers_[key].empty()) offers_.erase(key);
    refresh(key);
  }
}

void KubeView::refresh(const std::string& key) {
  const auto offered = offers_.find(key);
  const auto reported = reported_.find(key);
  if (offered == offers_.end()) {
    if (reported != reported_.end()) {
      reported_.erase(reported);
      on_change_({RegistryChange::Kind::kGone, {key, {}}});
    }
    return;
  }
  const auto& [rank, text] = *offered->second.begin();
  if (rank.is_stale || (is_unreachable_ && is_ephemeral(key))) {
    // A worker that was never ready is not reported.
    if (reported == reported_.end() || reported->second.empty()) return;
    reported->second.clear();
    on_change_({RegistryChange::Kind::kStale, {key, {}}});
  } else if (reported == reported_.end() || reported->second != text) {
    reported_[key] = text;
    on_change_({RegistryChange::Kind::kPut, {key, text}});
  }
}

}  // namespace fo::fleet
