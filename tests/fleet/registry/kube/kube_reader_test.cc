// What only a registry in Kubernetes has to survive, against a stand-in for the API server.
#include "fleet/registry/kube/kube_reader.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/record/instance.h"
#include "fleet/registry/kube/kube_objects.h"
#include "fleet/registry/kube/service_objects.h"
#include "fleet/registry/records.h"
#include "fleet/registry/watching.h"
#include "kube/api_server.h"
#include "loop/run.h"
#include "support/failure.h"
#include "support/soon.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fo::test::soon;
using fo::test::status_of;
using nlohmann::json;
using test::card_object;
using test::id_number;
using test::pod_endpoint;
using test::slice_object;
using test::Watching;
using test::with_condition;

class KubeReaderTest : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<RecordReader> open() const {
    KubeReaderConfig config;
    config.uri = "k8s:ns/kubernetes.io/service-name=llama";
    config.kube.server = api_.url();
    config.name_space = "ns";
    config.selector = "kubernetes.io/service-name=llama";
    return make_kube_reader(std::move(config));
  }
  std::vector<Record> list(const std::string& prefix = "") const {
    return loop::run_to_end(open()->list(prefix, soon()));
  }

  fo::test::KubeApi api_;
};

TEST_F(KubeReaderTest, ListsTheReadyWorkersOfItsServiceAndTheirCard) {
  api_.put(slice_object("b", {pod_endpoint(3)}));
  api_.put(slice_object("a", {pod_endpoint(1), with_condition(pod_endpoint(2), "ready", false)}));
  api_.put(slice_object("other", {pod_endpoint(4)}, "mistral"));
  api_.put(card_object("card", R"({"version":1,"name":"llama"})"));
  const std::vector<Record> workers = list("instances/");
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].key, "instances/llama/worker/generate/" + id_number(1));
  EXPECT_EQ(workers[1].key, "instances/llama/worker/generate/" + id_number(3));
  const std::vector<Record> cards = list("cards/");
  ASSERT_EQ(cards.size(), 1U);
  const Instance worker = decode_instance(workers[0]);
  EXPECT_EQ(worker.model, "llama");
  EXPECT_EQ(cards[0].key, "cards/" + worker.card);
  EXPECT_EQ(list().size(), 3U);
}

TEST_F(KubeReaderTest, AWorkerWithTwoAddressesIsListedOnce) {
  json v6 = slice_object("a", {pod_endpoint(1, "fd00::1")});
  v6["addressType"] = "IPv6";
  api_.put(v6);
  api_.put(slice_object("b", {pod_endpoint(1)}));
  const std::vector<Record> workers = list("instances/");
  ASSERT_EQ(workers.size(), 1U);
  EXPECT_EQ(decode_instance(workers[0]).url, "http://10.0.0.1:8000");
}

TEST_F(KubeReaderTest, AWatchFollowsSlicesAndCards) {
  api_.put(slice_object("a", {pod_endpoint(1)}));
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  api_.put(slice_object("b", {pod_endpoint(2)}));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  api_.put(slice_object("b", {with_condition(pod_endpoint(2), "terminating", true)}));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  EXPECT_EQ(life_of(watch.last_text()), Life::kDraining);
  api_.remove("EndpointSlice", "b");
  EXPECT_EQ(watch.next(), "gone " + id_number(2));
  api_.put(card_object("card", R"({"version":1,"name":"llama"})"));
  EXPECT_EQ(watch.next(), "put " + id_number(1));
  EXPECT_EQ(json::parse(watch.last_text())["model"], "llama");
  api_.remove("ConfigMap", "card");
  EXPECT_EQ(watch.next(), "put " + id_number(1));
  EXPECT_EQ(json::parse(watch.last_text())["model"], "");
}

TEST_F(KubeReaderTest, WorkersAreStaleWhileTheApiServerIsUnreachable) {
  api_.put(slice_object("a", {pod_endpoint(1), pod_endpoint(2)}));
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1) + ", put " + id_number(2));
  api_.fault({{"verb", "*"}, {"status", 503}});
  api_.fault({{"do", "hang-up"}});
  EXPECT_EQ(watch.next(), "stale " + id_number(1));
  EXPECT_EQ(watch.next(), "stale " + id_number(2));
  api_.put(slice_object("a", {pod_endpoint(2)}));
  api_.mend();
  EXPECT_EQ(watch.next(), "gone " + id_number(1));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
}

TEST_F(KubeReaderTest, AnApiServerThatLosesItsDataIsListedAgain) {
  api_.put(slice_object("a", {pod_endpoint(1)}));
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  api_.kill();
  EXPECT_EQ(watch.next(), "stale " + id_number(1));
  api_.start();
  EXPECT_EQ(watch.next(), "gone " + id_number(1));
  api_.put(slice_object("a", {pod_endpoint(2)}));
  EXPECT_EQ(watch.next(), "put " + id_number(2));
  // Its resource versions begin again, too, and the watch does not run meanwhile.
  api_.kill();
  api_.start();
  api_.put(slice_object("a", {pod_endpoint(3)}));
  EXPECT_EQ(watch.next(), "gone " + id_number(2));
  EXPECT_EQ(watch.next(), "put " + id_number(3));
}

TEST_F(KubeReaderTest, AFailureOfAWatchAloneIsNotReported) {
  api_.put(slice_object("a", {pod_endpoint(1)}));
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
  for (const json& fault : {json{{"do", "cut"}}, json{{"do", "end"}}, json{{"do", "lost"}},
                            json{{"status", 500}}, json{{"status", 403}}, json{{"status", 410}}}) {
    json twice = fault;
    twice["verb"] = "watch";
    twice["count"] = 2;
    api_.fault(twice);
    api_.fault({{"do", "hang-up"}});
    api_.put(slice_object("b", {pod_endpoint(2)}));
    EXPECT_EQ(watch.next(), "put " + id_number(2)) << fault;
    api_.remove("EndpointSlice", "b");
    EXPECT_EQ(watch.next(), "gone " + id_number(2)) << fault;
  }
}

TEST_F(KubeReaderTest, ChangesThatWereCompactedAreSeenInANewListing) {
  api_.put(slice_object("a", {pod_endpoint(1)}));
  api_.put(slice_object("b", {pod_endpoint(2)}));
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1) + ", put " + id_number(2));
  // The watch does not run meanwhile.
  api_.fault({{"do", "hang-up"}});
  api_.remove("EndpointSlice", "a");
  api_.put(slice_object("c", {pod_endpoint(3)}));
  api_.compact();
  const std::set<std::string> changes{watch.next(), watch.next()};
  EXPECT_EQ(changes, (std::set<std::string>{"gone " + id_number(1), "put " + id_number(3)}));
}

TEST_F(KubeReaderTest, StartsWhileTheApiServerIsUnreachable) {
  api_.put(slice_object("a", {pod_endpoint(1)}));
  api_.fault({{"verb", "list"}, {"count", 3}, {"status", 503}});
  Watching watch(open(), "instances/");
  EXPECT_EQ(watch.listing(), "put " + id_number(1));
}

TEST_F(KubeReaderTest, MissingPermissionsAndOtherServersAreErrors) {
  const auto status = [&] { return status_of([&] { list(); }); };
  api_.fault({{"verb", "list"}, {"status", 403}});
  EXPECT_EQ(status(), ExitStatus::kNotPermitted);
  EXPECT_EQ(status_of([&] {
              loop::run_to_end(open()->watch("instances/", [](const RegistryChange&) {}));
            }),
            ExitStatus::kNotPermitted);
  api_.mend();
  api_.fault({{"verb", "list"}, {"do", "page"}, {"status", 200}});
  EXPECT_EQ(status(), ExitStatus::kProtocol);
  api_.kill();
  EXPECT_EQ(status(), ExitStatus::kUnavailable);
}

TEST_F(KubeReaderTest, AHostileObjectEndsNothing) {
  json slice = slice_object("bad", {});
  slice["endpoints"] = "x";
  api_.put(slice);
  json map = card_object("bad", "x");
  map["data"] = 1;
  api_.put(map);
  api_.put(slice_object("good", {pod_endpoint(1, "169.254.169.254"), pod_endpoint(2)}));
  api_.put(slice_object("full", std::vector<json>(kMaxSliceEndpoints + 1, pod_endpoint(3))));
  EXPECT_EQ(list().size(), 1U);
  Watching watch(open(), "");
  EXPECT_EQ(watch.listing(), "put " + id_number(2));
  slice["endpoints"] = 1;
  api_.put(slice);
  api_.put(slice_object("bad", {pod_endpoint(4)}));
  EXPECT_EQ(watch.next(), "put " + id_number(4));
}

}  // namespace
}  // namespace fo::fleet
