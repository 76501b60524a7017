// The records of the workers and cards that Kubernetes' objects describe, and how they change with
// each object. It never waits.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fleet/registry/kube/service_objects.h"
#include "fleet/registry/registry.h"
#include "kube/api.h"

namespace fo::fleet {

class KubeView {
 public:
  /// Reports records whose keys begin with `prefix`: kStale for a worker that is not ready, kGone
  /// for one that is in no slice. `registry` is its URI, for the log.
  KubeView(std::string registry, std::string prefix,
           std::function<void(const RegistryChange&)> on_change);

  /// The object is new, or has changed. An invalid one is ignored, with one warning in the log.
  void put_slice(const kube::Object& object);
  void put_card(const kube::Object& object);
  /// The object was deleted.
  void remove_slice(const std::string& name);
  void remove_card(const std::string& name);

  /// While the API server is unreachable, all workers are stale.
  void set_unreachable(bool is_unreachable);

 private:
  // A worker may be in several slices: one each for IPv4 and IPv6, and two while Kubernetes moves
  // it. The offer with the lowest rank counts: a ready one first, then one with IPv4.
  struct Rank {
    bool is_stale = false;
    bool is_ipv6 = false;
    /// The object that makes the offer.
    std::string owner;
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  struct Offer {
    std::string key;
    Rank rank;
    std::string text;
  };

  void warn(const std::string& reason) const;
  void set_card(const std::string& name, std::optional<ServiceCard> card);
  void offer_slice(const std::string& name);
  // Replaces the previous offers of `owner`.
  void offer(const std::string& owner, std::vector<Offer> offers);
  void refresh(const std::string& key);

  const std::string registry_;
  const std::string prefix_;
  const std::function<void(const RegistryChange&)> on_change_;
  std::map<std::string, EndpointSlice> slices_;
  std::map<std::string, ServiceCard> cards_;
  // Texts by key and rank, and keys by owner.
  std::map<std::string, std::map<Rank, std::string>> offers_;
  std::map<std::string, std::set<std::string>> keys_;
  // The last reported text of each key; empty for a stale record.
  std::map<std::string, std::string> reported_;
  bool is_unreachable_ = false;
};

}  // namespace fo::fleet
