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

/// An API server accepts no more in one slice.
inline constexpr std::size_t kMaxSliceEndpoints = 1000;

kube::Collection endpoint_slices_in(const std::string& name_space);
kube::Collection config_maps_in(const std::string& name_space);

struct SliceWorker {
  /// Key of its record, "instances/SERVICE/worker/generate/ID".
  std::string key;
  /// The record without the members that a card has. Its id is the pod's uid, or the digest of its
  /// URL for an endpoint that is not a pod; it is draining while the pod terminates.
  Instance instance;
  /// False: Kubernetes sends it no requests, but it may answer.
  bool is_ready = false;
};

struct EndpointSlice {
  std::string service;
  bool is_ipv6 = false;
  std::vector<SliceWorker> workers;
  /// Why the first of the endpoints that are left out is none of the workers; empty: all are.
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
