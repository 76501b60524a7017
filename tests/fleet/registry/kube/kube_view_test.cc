#include "fleet/registry/kube/kube_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fleet/registry/kube/kube_objects.h"
#include "fleet/registry/records.h"
#include "support/stderr_text.h"

namespace fo::fleet {
namespace {

using nlohmann::json;
using test::as_read;
using test::card_object;
using test::id_number;
using test::pod_endpoint;
using test::slice_object;
using test::with_condition;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kLlamaCard[] = R"({"version":1,"name":"llama","dtype":"bfloat16","kv_abi":"x"})";

class KubeViewTest : public testing::Test {
 protected:
  void note(const RegistryChange& change) {
    const std::string& key = change.record.key;
    const std::string name = key.starts_with("cards/") ? "card" : key.substr(key.rfind('/') + 31);
    switch (change.kind) {
      case RegistryChange::Kind::kPut:
        last_ = json::parse(change.record.text);
        changes_.push_back("put " + name);
        break;
      case RegistryChange::Kind::kStale:
        changes_.push_back("stale " + name);
        break;
      case RegistryChange::Kind::kGone:
        changes_.push_back("gone " + name);
        break;
      case RegistryChange::Kind::kListed:
        ADD_FAILURE() << "a view has no listings";
    }
  }
  std::vector<std::string> changes() { return std::exchange(changes_, {}); }
  void put(const std::string& name, const std::vector<json>& endpoints) {
    view_.put_slice(as_read(slice_object(name, endpoints)));
  }
  void put_card(const std::string& name, const std::string& card,
                const std::string& service = "llama") {
    view_.put_card(as_read(card_object(name, card, service)));
  }

  KubeView view_{"k8s:ns/x", "", [this](const RegistryChange& change) { note(change); }};
  json last_;
  std::vector<std::string> changes_;
};

TEST_F(KubeViewTest, ReportsEachChangeOnce) {
  put("a", {pod_endpoint(1), pod_endpoint(2)});
  EXPECT_THAT(changes(), ElementsAre("put 01", "put 02"));
  put("a", {pod_endpoint(1), pod_endpoint(2)});
  EXPECT_THAT(changes(), IsEmpty());
  put("a", {pod_endpoint(1, "10.0.0.7"), pod_endpoint(2)});
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  EXPECT_EQ(last_["url"], "http://10.0.0.7:8000");
  put("a", {pod_endpoint(2)});
  EXPECT_THAT(changes(), ElementsAre("gone 01"));
  view_.remove_slice("a");
  EXPECT_THAT(changes(), ElementsAre("gone 02"));
  view_.remove_slice("a");
  EXPECT_THAT(changes(), IsEmpty());
}

TEST_F(KubeViewTest, NotReadyIsStaleAndTerminatingIsDraining) {
  put("a", {with_condition(pod_endpoint(1), "ready", false)});
  EXPECT_THAT(changes(), IsEmpty());
  put("a", {pod_endpoint(1)});
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  put("a", {with_condition(pod_endpoint(1), "ready", false)});
  EXPECT_THAT(changes(), ElementsAre("stale 01"));
  put("a", {pod_endpoint(1)});
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  put("a", {with_condition(with_condition(pod_endpoint(1), "ready", false), "terminating", true)});
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  EXPECT_EQ(last_["life"], "draining");
  put("a", {});
  EXPECT_THAT(changes(), ElementsAre("gone 01"));
}

TEST_F(KubeViewTest, AStaleWorkerThatIsAbsentIsGone) {
  put("a", {pod_endpoint(1)});
  put("a", {with_condition(pod_endpoint(1), "ready", false)});
  put("a", {});
  EXPECT_THAT(changes(), ElementsAre("put 01", "stale 01", "gone 01"));
}

TEST_F(KubeViewTest, APodInSeveralSlicesIsOneWorker) {
  put("a", {pod_endpoint(1)});
  json v6 = slice_object("b", {pod_endpoint(1, "fd00::1")});
  v6["addressType"] = "IPv6";
  view_.put_slice(as_read(v6));
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  EXPECT_EQ(last_["url"], "http://10.0.0.1:8000");
  // It moves to another slice.
  put("c", {with_condition(pod_endpoint(1), "ready", false)});
  put("c", {pod_endpoint(1)});
  put("a", {});
  EXPECT_THAT(changes(), IsEmpty());
  put("c", {});
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  EXPECT_EQ(last_["url"], "http://[fd00::1]:8000");
  view_.remove_slice("b");
  EXPECT_THAT(changes(), ElementsAre("gone 01"));
}

TEST_F(KubeViewTest, AWorkerHasTheCardOfItsService) {
  put("a", {pod_endpoint(1)});
  EXPECT_EQ(last_["model"], "");
  put_card("other", R"({"version":1,"name":"other"})", "mistral");
  EXPECT_THAT(changes(), ElementsAre("put 01", "put card"));
  put_card("card", kLlamaCard);
  EXPECT_THAT(changes(), ElementsAre("put card", "put 01"));
  EXPECT_EQ(last_["model"], "llama");
  EXPECT_EQ(last_["kv_abi"], "x");
  EXPECT_EQ(last_["card"], checksum(parse_card(kLlamaCard, "")));
  // What is not in the checksum does not change the key.
  put_card("card", R"({"version":1,"name":"llama-3","dtype":"bfloat16","kv_abi":"x"})");
  EXPECT_THAT(changes(), ElementsAre("put card", "put 01"));
  put_card("card", R"({"version":1,"name":"llama-3","dtype":"float16"})");
  EXPECT_THAT(changes(), testing::UnorderedElementsAre("gone card", "put card", "put 01"));
  put("a", {pod_endpoint(1), pod_endpoint(2)});
  EXPECT_THAT(changes(), ElementsAre("put 02"));
  EXPECT_EQ(last_["model"], "llama-3");
  view_.remove_card("card");
  EXPECT_THAT(changes(), ElementsAre("gone card", "put 01", "put 02"));
  EXPECT_EQ(last_["model"], "");
  json empty = card_object("other", "", "mistral");
  empty["data"] = json::object();
  view_.put_card(as_read(empty));
  EXPECT_THAT(changes(), ElementsAre("gone card"));
}

TEST_F(KubeViewTest, AllWorkersAreStaleWhileTheApiServerIsUnreachable) {
  put("a", {pod_endpoint(1), with_condition(pod_endpoint(2), "ready", false)});
  put_card("card", R"({"version":1,"name":"other"})", "other");
  EXPECT_THAT(changes(), ElementsAre("put 01", "put card"));
  view_.set_unreachable(true);
  view_.set_unreachable(true);
  EXPECT_THAT(changes(), ElementsAre("stale 01"));
  view_.set_unreachable(false);
  EXPECT_THAT(changes(), ElementsAre("put 01"));
  view_.set_unreachable(true);
  put("a", {});
  EXPECT_THAT(changes(), ElementsAre("stale 01", "gone 01"));
}

TEST_F(KubeViewTest, InvalidObjectsChangeNothingAndAreOneWarning) {
  put("a", {pod_endpoint(1)});
  put_card("card", kLlamaCard);
  changes();
  const auto warned = [&](const json& object, const std::string& warning) {
    const test::StderrText log;
    if (object["kind"] == "ConfigMap") {
      view_.put_card(as_read(object));
    } else {
      view_.put_slice(as_read(object));
    }
    EXPECT_TRUE(log.contains("warning: registry 'k8s:ns/x': " + warning));
  };
  json slice = slice_object("a", {});
  slice["endpoints"] = 1;
  warned(slice, "EndpointSlice 'ns/a': endpoints: expected a list\n");
  warned(card_object("card", "text"), "read 'ns/card/card.json': not JSON\n");
  EXPECT_THAT(changes(), IsEmpty());
  const json bad = pod_endpoint(2, "169.254.169.254");
  warned(slice_object("a", {pod_endpoint(1), bad, bad}),
         "an endpoint of EndpointSlice 'a' is ignored: URL 'http://169.254.169.254:8000': not an "
         "address of the allowed networks\n");
  EXPECT_THAT(changes(), IsEmpty());
  json large = pod_endpoint(3);
  large["nodeName"] = std::string(kMaxRecordBytes, 'x');
  warned(slice_object("b", {large}),
         "record 'instances/llama/worker/generate/" + id_number(3) + "' is ignored: too long\n");
  EXPECT_THAT(changes(), IsEmpty());
}

TEST(KubeViewPrefix, SelectsRecords) {
  std::vector<std::string> keys;
  KubeView cards("k8s:ns/x", "cards/",
                 [&](const RegistryChange& change) { keys.push_back(change.record.key); });
  cards.put_card(as_read(card_object("card", kLlamaCard)));
  cards.put_slice(as_read(slice_object("a", {pod_endpoint(1)})));
  EXPECT_THAT(keys, ElementsAre("cards/" + checksum(parse_card(kLlamaCard, ""))));
}

}  // namespace
}  // namespace fo::fleet
