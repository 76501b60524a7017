#include "fleet/registry/kube/service_objects.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "fleet/record/endpoint_id.h"
#include "fleet/record/worker_url.h"
#include "json/object.h"
#include "kube/reading.h"
#include "net/address.h"
#include "text/time_text.h"

namespace fo::fleet {
namespace {

using fo::json::flag_in;
using fo::json::list_in;
using fo::json::Misfit;
using fo::json::object_in;
using fo::json::text_in;
using nlohmann::json;

constexpr char kServiceLabel[] = "kubernetes.io/service-name";
constexpr char kCardFile[] = "card.json";
constexpr std::uint64_t kMaxPort = 65535;

// The scheme and the port of a slice's URLs.
struct SlicePort {
  std::string scheme;
  std::uint16_t number = 0;
};

std::string service_in(const json& object) {
  const json& labels = object_in(object_in(object, "metadata"), "labels");
  std::string service = text_in(labels, kServiceLabel);
  if (service.empty()) throw Misfit(std::string("missing label ") + kServiceLabel);
  return service;
}

SlicePort port_in(const json& slice) {
  std::optional<SlicePort> named;
  std::vector<SlicePort> all;
  for (const json& one : list_in(slice, "ports")) {
    const std::string name = text_in(one, "name");
    const std::string protocol = text_in(one, "protocol");
    const std::uint64_t number = kube::number_in(one, "port").value_or(0);
    if (number == 0 || number > kMaxPort || (!protocol.empty() && protocol != "TCP")) continue;
    const bool is_https = name == "https" || text_in(one, "appProtocol") == "https";
    all.push_back({is_https ? "https" : "http", static_cast<std::uint16_t>(number)});
    if (!named && (name == "http" || name == "https")) named = all.back();
  }
  if (named) return *named;
  if (all.size() != 1) throw Misfit("expected one TCP port, or one named http or https");
  return all.front();
}

// The time of the object's creation, which Kubernetes writes in whole seconds; empty if unknown.
std::string created_at(const json& object) {
  std::string time = text_in(object_in(object, "metadata"), "creationTimestamp");
  if (time.ends_with('Z')) time.insert(time.size() - 1, ".000");
  return text::parse_time(time) ? time : std::string();
}

SliceWorker worker_in(const json& endpoint, const EndpointId& id, const SlicePort& port) {
  const json& addresses = list_in(endpoint, "addresses");
  if (addresses.empty() || !addresses.front().is_string()) throw Misfit("missing address");
  const std::string& address = addresses.front().get_ref<const std::string&>();
  SliceWorker worker;
  Instance& instance = worker.instance;
  instance.url = port.scheme + "://" + net::to_string({address, port.number});
  // The readers of the record check their allowed networks. Only link-local addresses, which are
  // never allowed, are refused here.
  static const AllowedWorkers any_network(kAnyNetwork);
  if (any_network.check(instance.url).address.host != address) {
    throw Misfit(base::quoted(address) + ": not an address");
  }
  const json& target = object_in(endpoint, "targetRef");
  const std::string uid = text_in(target, "uid");
  instance.id = uid;
  std::erase(instance.id, '-');
  if (!is_instance_id(instance.id)) {
    instance.id = derived_instance_id(uid.empty() ? instance.url : uid);
  }
  const std::string pod = text_in(target, "name");
  if (!pod.empty()) instance.labels["pod"] = pod;
  instance.host = text_in(endpoint, "nodeName");
  // "serving" adds nothing: it differs from "ready" only while the pod terminates, and where the
  // Service publishes pods that are not ready.
  const json& conditions = object_in(endpoint, "conditions");
  const bool is_terminating = flag_in(conditions, "terminating");
  instance.life = is_terminating ? Life::kDraining : Life::kReady;
  const bool is_ready_unknown = fo::json::find(conditions, "ready") == nullptr;
  worker.is_ready = is_terminating || is_ready_unknown || flag_in(conditions, "ready");
  worker.key = instance_key(id, instance.id);
  return worker;
}

EndpointSlice slice_in(const json& object) {
  EndpointSlice slice;
  slice.service = service_in(object);
  slice.is_ipv6 = text_in(object, "addressType") == "IPv6";
  const EndpointId id{slice.service, "worker", "generate"};
  if (!parse_endpoint_id(to_string(id))) {
    throw Misfit("Service " + base::quoted(slice.service) + ": not a DNS label");
  }
  const json& endpoints = list_in(object, "endpoints");
  if (endpoints.size() > kMaxSliceEndpoints) {
    throw Misfit("more than " + std::to_string(kMaxSliceEndpoints) + " endpoints");
  }
  // The slice of a Service without pods has no ports.
  if (endpoints.empty()) return slice;
  const SlicePort port = port_in(object);
  // A slice does not say when its pods started. It is about as old as the Service, so the workers
  // of an older version of a deployment remain the older ones when their pods are replaced.
  const std::string started_at = created_at(object);
  for (const json& endpoint : endpoints) {
    try {
      slice.workers.push_back(worker_in(endpoint, id, port));
      slice.workers.back().instance.started_at = started_at;
    } catch (const std::runtime_error& error) {
      if (slice.fault.empty()) slice.fault = error.what();
    }
  }
  return slice;
}

// Calls `read` with an object that the API server has sent.
template <typename Read>
auto read_kube_object(const kube::Object& object, const char* kind, const Read& read) {
  const auto what = [&] {
    return kind + (" " + base::quoted(object.name_space + "/" + object.name));
  };
  return fo::json::read_object(object.text, kube::kMaxObjectBytes, what, read);
}

}  // namespace

kube::Collection endpoint_slices_in(const std::string& name_space) {
  return {{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"}, name_space};
}

kube::Collection config_maps_in(const std::string& name_space) {
  return {{"", "v1", "configmaps", "ConfigMap"}, name_space};
}

EndpointSlice read_endpoint_slice(const kube::Object& object) {
  return read_kube_object(object, "EndpointSlice", slice_in);
}

std::optional<ServiceCard> read_service_card(const kube::Object& object) {
  return read_kube_object(object, "ConfigMap", [&](const json& map) -> std::optional<ServiceCard> {
    const std::string text = text_in(object_in(map, "data"), kCardFile);
    if (text.empty()) return std::nullopt;
    const std::string file = object.name_space + "/" + object.name + "/" + kCardFile;
    return ServiceCard{service_in(map), parse_card(text, file)};
  });
}

}  // namespace fo::fleet
