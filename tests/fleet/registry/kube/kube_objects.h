// EndpointSlices and ConfigMaps for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kube/api.h"

namespace fo::test {

/// An endpoint of pod number `number`, whose id is id_number(number).
inline nlohmann::json pod_endpoint(int number, const std::string& address = "10.0.0.1") {
  const std::string digits = std::to_string(number);
  const std::string uid =
      "00000000-0000-0000-0000-" + std::string(12 - digits.size(), '0') + digits;
  return {{"addresses", {address}},
          {"conditions", {{"ready", true}, {"serving", true}, {"terminating", false}}},
          {"nodeName", "node-1"},
          {"targetRef", {{"kind", "Pod"}, {"name", "llama-" + digits}, {"uid", uid}}}};
}

inline nlohmann::json with_condition(nlohmann::json endpoint, const std::string& name, bool value) {
  endpoint["conditions"][name] = value;
  return endpoint;
}

inline nlohmann::json slice_object(const std::string& name,
                                   const std::vector<nlohmann::json>& endpoints,
                                   const std::string& service = "llama") {
  return {{"apiVersion", "discovery.k8s.io/v1"},
          {"kind", "EndpointSlice"},
          {"metadata", {{"name", name}, {"labels", {{"kubernetes.io/service-name", service}}}}},
          {"addressType", "IPv4"},
          {"ports", {{{"name", "http"}, {"protocol", "TCP"}, {"port", 8000}}}},
          {"endpoints", endpoints}};
}

inline nlohmann::json card_object(const std::string& name, const std::string& card,
                                  const std::string& service = "llama") {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"labels", {{"kubernetes.io/service-name", service}}}}},
          {"data", {{"card.json", card}}}};
}

/// As a client of the API server gets it.
inline kube::Object as_read(const nlohmann::json& object, const std::string& version = "1") {
  return {object["metadata"]["name"], "ns", version, object.dump()};
}

}  // namespace fo::test
