// Reads the workers behind a Service from Kubernetes' objects: EndpointSlices name the workers, and
// a ConfigMap has their card. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fleet/card/card.h"
#include "fleet/record/instance.h"
#include "kube/api.h"

namespace fo::fleet {

/// The maximum number of endpoints in one slice that an API server accepts.
inline constexpr std::size_t kMaxSliceEndpoints = 1000;

kube::Collection endpoint_slices_in(const std::string& name_space);
kube::Collection config_maps_in(const std::string& name_space);

struct SliceWorker {
  /// Key of its record, "instances/SERVICE/worker/generate/ID".
  std::string key;
  /// The record without the members that a card has. Its id is the pod's uid, or the digest of its
  /// URL for an endpoint that is not a pod; it is draining while the pod terminates. It started
  /// when the slice was created.
  Instance instance;
  /// False if Kubernetes sends it no requests; it may answer nevertheless.
  bool is_ready = false;
};

struct EndpointSlice {
  std::string service;
  bool is_ipv6 = false;
  std::vector<SliceWorker> workers;
  /// The reason why the first of the omitted endpoints was omitted; empty if none was.
  std::string fault;
};

/// The URLs have the port named "http" or "https", or the only one. Throws Error(kProtocol),
/// "EndpointSlice 'namespace/name': reason", if the slice as a whole is invalid.
EndpointSlice read_endpoint_slice(const kube::Object& object);

struct ServiceCard {
  std::string service;
  Card card;
};

/// nullopt for a ConfigMap without a "card.json". Throws Error(kProtocol) for one that names no
/// Service, and kBadData for an invalid card.
std::optional<ServiceCard> read_service_card(const kube::Object& object);

}  // namespace fo::fleet
