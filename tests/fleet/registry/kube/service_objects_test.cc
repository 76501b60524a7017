#include "fleet/registry/kube/service_objects.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fleet/registry/kube/kube_objects.h"
#include "fleet/registry/records.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

using nlohmann::json;
using test::as_read;
using test::card_object;
using test::pod_endpoint;
using test::slice_object;
using test::with_condition;

EndpointSlice read(const json& slice) { return read_endpoint_slice(as_read(slice)); }
SliceWorker only_worker(const json& slice) { return read(slice).workers.at(0); }
std::string why_refused(const json& slice) {
  return test::failure_of([&] { read(slice); }).message;
}
// Why the endpoint is left out of a slice.
std::string why_ignored(const json& endpoint) {
  const EndpointSlice slice = read(slice_object("a", {endpoint, pod_endpoint(2)}));
  EXPECT_EQ(slice.workers.size(), 1U);
  return slice.fault;
}

TEST(EndpointSliceWorkers, ArePodsWithTheirAddresses) {
  const EndpointSlice slice =
      read(slice_object("a", {pod_endpoint(1), pod_endpoint(2, "10.0.0.2")}));
  EXPECT_EQ(slice.service, "llama");
  EXPECT_EQ(slice.fault, "");
  ASSERT_EQ(slice.workers.size(), 2U);
  const SliceWorker& worker = slice.workers[0];
  EXPECT_EQ(worker.key, "instances/llama/worker/generate/" + test::id_number(1));
  EXPECT_EQ(worker.instance.id, test::id_number(1));
  EXPECT_EQ(worker.instance.url, "http://10.0.0.1:8000");
  EXPECT_EQ(worker.instance.host, "node-1");
  EXPECT_EQ(worker.instance.labels.at("pod"), "llama-1");
  EXPECT_EQ(slice.workers[1].instance.url, "http://10.0.0.2:8000");
}

TEST(EndpointSliceWorkers, FollowTheConditions) {
  const auto state = [](const json& endpoint) {
    const SliceWorker worker = only_worker(slice_object("a", {endpoint}));
    return std::string(to_string(worker.instance.life)) + (worker.is_ready ? "" : ", not ready");
  };
  const json endpoint = pod_endpoint(1);
  EXPECT_EQ(state(endpoint), "ready");
  EXPECT_EQ(state(with_condition(endpoint, "ready", false)), "ready, not ready");
  EXPECT_EQ(state(with_condition(endpoint, "serving", false)), "ready");
  EXPECT_EQ(state(with_condition(endpoint, "terminating", true)), "draining");
  EXPECT_EQ(state(with_condition(with_condition(endpoint, "ready", false), "terminating", true)),
            "draining");
  json unknown = endpoint;
  unknown["conditions"] = {{"ready", nullptr}};
  EXPECT_EQ(state(unknown), "ready");
  unknown.erase("conditions");
  EXPECT_EQ(state(unknown), "ready");
}

TEST(EndpointSliceWorkers, StartedWhenTheirSliceWasCreated) {
  json slice = slice_object("a", {pod_endpoint(1)});
  const auto started_at = [&] { return only_worker(slice).instance.started_at; };
  EXPECT_EQ(started_at(), "");
  slice["metadata"]["creationTimestamp"] = "2026-11-27T05:33:00Z";
  EXPECT_EQ(started_at(), "2026-11-27T05:33:00.000Z");
  slice["metadata"]["creationTimestamp"] = "yesterday";
  EXPECT_EQ(started_at(), "");
}

TEST(EndpointSliceWorkers, HaveTheSameIdEachTime) {
  json endpoint = pod_endpoint(1);
  const auto id = [&] { return only_worker(slice_object("a", {endpoint})).instance.id; };
  endpoint["targetRef"]["uid"] = "not-a-uuid";
  const std::string of_uid = id();
  EXPECT_TRUE(is_instance_id(of_uid));
  EXPECT_EQ(id(), of_uid);
  endpoint.erase("targetRef");
  const std::string of_url = id();
  EXPECT_TRUE(is_instance_id(of_url));
  EXPECT_NE(of_url, of_uid);
  endpoint["addresses"] = {"10.0.0.9"};
  EXPECT_NE(id(), of_url);
}

TEST(EndpointSliceWorkers, UseThePortNamedHttpOrTheOnlyOne) {
  const auto url = [](const json& ports) {
    json slice = slice_object("a", {pod_endpoint(1)});
    slice["ports"] = ports;
    return only_worker(slice).instance.url;
  };
  EXPECT_EQ(url({{{"port", 1}}}), "http://10.0.0.1:1");
  EXPECT_EQ(url({{{"name", "metrics"}, {"port", 2}}}), "http://10.0.0.1:2");
  EXPECT_EQ(url({{{"name", "metrics"}, {"port", 2}}, {{"name", "http"}, {"port", 3}}}),
            "http://10.0.0.1:3");
  EXPECT_EQ(url({{{"name", "https"}, {"port", 4}}}), "https://10.0.0.1:4");
  EXPECT_EQ(url({{{"appProtocol", "https"}, {"port", 5}}}), "https://10.0.0.1:5");
  EXPECT_EQ(url({{{"protocol", "UDP"}, {"port", 6}}, {{"protocol", "TCP"}, {"port", 7}}}),
            "http://10.0.0.1:7");
  json v6 = slice_object("a", {pod_endpoint(1, "fd00::1")});
  v6["addressType"] = "IPv6";
  EXPECT_EQ(only_worker(v6).instance.url, "http://[fd00::1]:8000");
  EXPECT_TRUE(read(v6).is_ipv6);
  const std::string reason =
      "EndpointSlice 'ns/a': expected one TCP port, or one named http or https";
  for (const char* ports : {"[]", "null", R"([{"port":null}])", R"([{"port":65536}])",
                            R"([{"name":"a","port":1},{"name":"b","port":2}])"}) {
    json slice = slice_object("a", {pod_endpoint(1)});
    slice["ports"] = json::parse(ports);
    EXPECT_EQ(why_refused(slice), reason) << ports;
  }
}

TEST(EndpointSliceWorkers, NoneAreInASliceOfAServiceWithoutPods) {
  json slice = slice_object("a", {});
  slice["endpoints"] = nullptr;
  slice["ports"] = nullptr;
  EXPECT_TRUE(read(slice).workers.empty());
  EXPECT_EQ(read(slice).fault, "");
}

TEST(EndpointSliceWorkers, InvalidEndpointsAreLeftOut) {
  EXPECT_EQ(why_ignored(pod_endpoint(1, "169.254.169.254")),
            "URL 'http://169.254.169.254:8000': not an address of the allowed networks");
  EXPECT_NE(why_ignored(pod_endpoint(1, "fe80::1")), "");
  EXPECT_NE(why_ignored(pod_endpoint(1, "user@10.0.0.1")), "");
  EXPECT_EQ(why_ignored(pod_endpoint(1, "10.0.0.1/path?")), "'10.0.0.1/path?': not an address");
  EXPECT_NE(why_ignored(pod_endpoint(1, "")), "");
  json endpoint = pod_endpoint(1);
  endpoint["conditions"]["ready"] = "yes";
  EXPECT_EQ(why_ignored(endpoint), "ready: expected true or false");
  endpoint = pod_endpoint(1);
  endpoint["addresses"] = "10.0.0.1";
  EXPECT_EQ(why_ignored(endpoint), "addresses: expected a list");
  endpoint["addresses"] = {1};
  EXPECT_EQ(why_ignored(endpoint), "missing address");
  endpoint = pod_endpoint(1);
  endpoint["targetRef"] = {{"uid", 5}};
  EXPECT_EQ(why_ignored(endpoint), "uid: expected a string");
  EXPECT_NE(why_ignored("text"), "");
  EXPECT_NE(why_ignored(nullptr), "");
}

TEST(EndpointSliceWorkers, InvalidSlicesAreRefused) {
  json slice = slice_object("a", {pod_endpoint(1)});
  slice["metadata"]["labels"] = {{"app", "llama"}};
  EXPECT_EQ(why_refused(slice), "EndpointSlice 'ns/a': missing label kubernetes.io/service-name");
  EXPECT_EQ(why_refused(slice_object("a", {pod_endpoint(1)}, "Llama/x")),
            "EndpointSlice 'ns/a': Service 'Llama/x': not a DNS label");
  EXPECT_EQ(
      why_refused(slice_object("a", std::vector<json>(kMaxSliceEndpoints + 1, pod_endpoint(1)))),
      "EndpointSlice 'ns/a': more than 1000 endpoints");
  slice = slice_object("a", {});
  slice["endpoints"] = json::object();
  EXPECT_EQ(why_refused(slice), "EndpointSlice 'ns/a': endpoints: expected a list");
  const auto reason_of = [](const std::string& text) {
    return test::failure_of([&] { read_endpoint_slice({"a", "ns", "1", text}); }).message;
  };
  EXPECT_EQ(reason_of(R"({"metadata":1})"), "EndpointSlice 'ns/a': metadata: expected an object");
  EXPECT_EQ(reason_of("text"), "EndpointSlice 'ns/a': not JSON");
}

TEST(ServiceCards, AreInConfigMaps) {
  const auto found =
      read_service_card(as_read(card_object("c", R"({"version":1,"name":"llama"})")));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->service, "llama");
  EXPECT_EQ(found->card.name, "llama");
  json other = card_object("c", "");
  other["data"] = {{"other", "x"}};
  other["metadata"].erase("labels");
  EXPECT_FALSE(read_service_card(as_read(other)));
  other.erase("data");
  EXPECT_FALSE(read_service_card(as_read(other)));
}

TEST(ServiceCards, ThatAreInvalidAreRefused) {
  const auto reason = [](const json& map) {
    return test::failure_of([&] { read_service_card(as_read(map)); }).message;
  };
  json map = card_object("c", R"({"version":1,"name":"llama"})");
  map["metadata"].erase("labels");
  EXPECT_EQ(reason(map), "ConfigMap 'ns/c': missing label kubernetes.io/service-name");
  EXPECT_EQ(reason(card_object("c", "text")), "read 'ns/c/card.json': not JSON");
  map = card_object("c", "x");
  map["data"] = {{"card.json", 5}};
  EXPECT_EQ(reason(map), "ConfigMap 'ns/c': card.json: expected a string");
}

}  // namespace
}  // namespace fo::fleet
