#include "kube/api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kube/collections.h"
#include "support/failure.h"

namespace fo::kube {
namespace {

using base::ExitStatus;
using nlohmann::json;
using std::chrono::seconds;
using test::status_of;

json plain() {
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", {{"name", "pair"}, {"namespace", "ns"}, {"resourceVersion", "17"}}}};
}

TEST(KubeApi, PathsNameTheLease) {
  EXPECT_EQ(path_of(kLeases), "/apis/coordination.k8s.io/v1/namespaces/ns/leases");
  EXPECT_EQ(path_of(kLeases, "pair"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/pair");
  EXPECT_EQ(watch_path(kLeases, {"", "metadata.name=pair"}, "1&2\n", seconds(30)),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases?watch=1&allowWatchBookmarks=true"
            "&fieldSelector=metadata.name%3Dpair&resourceVersion=1%262%0A&timeoutSeconds=30");
}

TEST(KubeApi, StatusIsAMessage) {
  const auto message = [](const std::string& body) {
    const std::optional<Status> status = decode_status(body);
    return status ? status->message : "(none)";
  };
  EXPECT_EQ(message(R"({"kind":"Status","message":"no\nway","code":403})"), "no way");
  EXPECT_EQ(message(R"({"kind":"Status"})"), "");
  EXPECT_EQ(message(R"({"kind":"Status","message":7})"), "(none)");
  EXPECT_EQ(message(R"({"kind":"Status","details":7})"), "(none)");
  EXPECT_EQ(message(R"({"kind":"Lease","message":"x"})"), "(none)");
  EXPECT_EQ(message("<html>"), "(none)");
  EXPECT_EQ(message(""), "(none)");
  EXPECT_EQ(message(json{{"kind", "Status"}, {"message", std::string(9999, 'x')}}.dump()),
            std::string(512, 'x'));
}

TEST(KubeApi, OnlyAStatusSaysThatTheLeaseIsNotThere) {
  const json absent{{"kind", "Status"},
                    {"code", 404},
                    {"reason", "NotFound"},
                    {"message", "leases.coordination.k8s.io \"pair\" not found"},
                    {"details", {{"kind", "leases"}, {"name", "pair"}}}};
  const auto reports_no_lease = [](const std::string& body) {
    return reports_absent(decode_status(body), "leases", "pair");
  };
  const auto reports_no_namespace = [](const std::string& body) {
    return reports_absent(decode_status(body), "namespaces", "ns");
  };
  EXPECT_TRUE(reports_no_lease(absent.dump()));
  EXPECT_FALSE(reports_no_namespace(absent.dump()));
  EXPECT_FALSE(reports_no_lease("404 page not found"));
  const auto another = [&](const char* pointer, const json& value) {
    json object = absent;
    object[json::json_pointer(pointer)] = value;
    return object.dump();
  };
  EXPECT_FALSE(reports_no_lease(another("/kind", "Lease")));
  EXPECT_FALSE(reports_no_lease(another("/reason", "Forbidden")));
  EXPECT_FALSE(reports_no_lease(another("/details", json::object())));
  EXPECT_FALSE(reports_no_lease(another("/details", nullptr)));
  EXPECT_FALSE(reports_no_lease(another("/details/name", "other")));
  const std::string no_namespace =
      another("/details", json{{"kind", "namespaces"}, {"name", "ns"}});
  EXPECT_FALSE(reports_no_lease(no_namespace));
  EXPECT_TRUE(reports_no_namespace(no_namespace));
}

TEST(KubeApi, WatchTellsChangesAndWhenToLookAnew) {
  using Kind = WatchEvent::Kind;
  const auto event = [](const json& type, const json& object) {
    return decode_watch_event(json{{"type", type}, {"object", object}}.dump(), kLeases.resource,
                              "watch");
  };
  EXPECT_EQ(event("MODIFIED", plain()).kind, Kind::kModified);
  const WatchEvent added = event("ADDED", plain());
  EXPECT_EQ(added.kind, Kind::kAdded);
  EXPECT_EQ(added.object.resource_version, "17");
  EXPECT_EQ(json::parse(added.object.text), plain());
  EXPECT_EQ(event("BOOKMARK", {{"kind", "Lease"}}).kind, Kind::kBookmark);
  EXPECT_EQ(event("BOOKMARK", {{"metadata", {{"resourceVersion", "18"}}}}).object.resource_version,
            "18");
  EXPECT_EQ(event("DELETED", plain()).kind, Kind::kDeleted);
  EXPECT_EQ(event("ERROR", {{"kind", "Status"}, {"code", 410}}).kind, Kind::kExpired);
  const WatchEvent failed =
      event("ERROR", {{"kind", "Status"}, {"code", 500}, {"message", "etcd\nleft"}});
  EXPECT_EQ(failed.kind, Kind::kFailed);
  EXPECT_EQ(failed.reason, "etcd left");
  EXPECT_EQ(event("LATER", plain()).kind, Kind::kFailed);
  EXPECT_EQ(status_of([&] { event("MODIFIED", json::object()); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { event("DELETED", {{"kind", "Lease"}}); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { event("ERROR", {{"code", "410"}}); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { event("BOOKMARK", {{"metadata", 7}}); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { event(1, plain()); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { decode_watch_event("x", kLeases.resource, "watch"); }),
            ExitStatus::kProtocol);
}

TEST(KubeApi, PathsNameAnythingAndNothingElse) {
  EXPECT_EQ(path_of(kConfigMaps, "a"), "/api/v1/namespaces/ns/configmaps/a");
  const Collection nodes{{"", "v1", "nodes", "Node"}, ""};
  EXPECT_EQ(path_of(nodes, "a"), "/api/v1/nodes/a");
  EXPECT_EQ(path_of(kConfigMaps, "../secrets/a?b"),
            "/api/v1/namespaces/ns/configmaps/..%2Fsecrets%2Fa%3Fb");
  EXPECT_EQ(list_path(kConfigMaps, {}, 0), "/api/v1/namespaces/ns/configmaps");
  EXPECT_EQ(list_path(kConfigMaps, {"a=b,c!=d", "metadata.name=x"}, 50, "a+b=&"),
            "/api/v1/namespaces/ns/configmaps?labelSelector=a%3Db%2Cc%21%3Dd"
            "&fieldSelector=metadata.name%3Dx&limit=50&continue=a%2Bb%3D%26");
  EXPECT_EQ(describe(kConfigMaps, "a"), "ConfigMap 'ns/a'");
  EXPECT_EQ(describe(nodes, "a"), "Node 'a'");
}

json list_of(const json& items) {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMapList"},
          {"metadata", {{"resourceVersion", "40"}, {"continue", "next"}}},
          {"items", items}};
}
List decode(const json& list) { return decode_list(list.dump(), kConfigMaps.resource, "list"); }

TEST(KubeApi, ItemsOfAListAreWholeObjects) {
  const json item{{"metadata", {{"name", "a"}, {"namespace", "ns"}, {"resourceVersion", "7"}}},
                  {"data", {{"card", "{}"}}}};
  const List list = decode(list_of(json::array({item})));
  EXPECT_EQ(list.resource_version, "40");
  EXPECT_EQ(list.next, "next");
  ASSERT_EQ(list.objects.size(), 1U);
  EXPECT_EQ(list.objects[0].name, "a");
  EXPECT_EQ(list.objects[0].name_space, "ns");
  json whole = item;
  whole["kind"] = "ConfigMap";
  whole["apiVersion"] = "v1";
  EXPECT_EQ(json::parse(list.objects[0].text), whole);
  // An object of the list is complete by itself.
  EXPECT_EQ(decode_object(list.objects[0].text, kConfigMaps.resource, "get").name, "a");
  json empty = list_of(nullptr);
  EXPECT_TRUE(decode(empty).objects.empty());
  empty.erase("items");
  EXPECT_TRUE(decode(empty).objects.empty());
}

TEST(KubeApi, ListsThatAreNoneAreRefused) {
  const json item{{"metadata", {{"name", "a"}, {"resourceVersion", "7"}}}};
  const auto refused = [&](const char* pointer, const json& value) {
    json list = list_of(json::array({item}));
    list[json::json_pointer(pointer)] = value;
    EXPECT_EQ(status_of([&] { decode(list); }), ExitStatus::kProtocol) << pointer << " " << value;
  };
  refused("/kind", "ConfigMap");
  refused("/apiVersion", "v2");
  refused("/metadata", 7);
  refused("/metadata/resourceVersion", "");
  refused("/metadata/resourceVersion", 7);
  refused("/metadata/continue", 7);
  refused("/metadata/continue", std::string(20000, 'x'));
  refused("/items", json::object());
  refused("/items", "all");
  refused("/items/0", 7);
  refused("/items/0/kind", "Secret");
  refused("/items/0/metadata/name", "");
  refused("/items/0/metadata/resourceVersion", std::string(257, '1'));
  EXPECT_EQ(status_of([&] { decode(list_of(json::array({item}))); }), ExitStatus::kOk);
  const std::string whole = list_of(json::array({item})).dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(status_of([&] { decode_list(whole.substr(0, size), kConfigMaps.resource, "list"); }),
              ExitStatus::kProtocol);
  }
}

}  // namespace
}  // namespace fo::kube
