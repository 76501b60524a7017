#include "lock/lease/kube_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "lock/support.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using test::status_of;

const LeaseName kName{"ns", "pair"};

json plain() {
  return {{"apiVersion", "coordination.k8s.io/v1"},
          {"kind", "Lease"},
          {"metadata", {{"name", "pair"}, {"namespace", "ns"}, {"resourceVersion", "17"}}},
          {"spec",
           {{"holderIdentity", "engine-0_0123456789abcdef"},
            {"leaseDurationSeconds", 15},
            {"leaseTransitions", 4},
            {"acquireTime", "2026-11-21T05:33:00.000001Z"},
            {"renewTime", "2026-11-21T05:34:00.000002Z"}}}};
}

KubeLease decode(const json& object) { return decode_lease(object.dump(), kName); }

ExitStatus refusal(const std::string& body) {
  return status_of([&] { decode_lease(body, kName); });
}

TEST(KubeApi, PathsNameTheLease) {
  EXPECT_EQ(leases_path(kName), "/apis/coordination.k8s.io/v1/namespaces/ns/leases");
  EXPECT_EQ(lease_path(kName), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/pair");
  EXPECT_EQ(watch_path(kName, "1&2\n", seconds(30)),
            "/apis/coordination.k8s.io/v1/namespaces/ns/leases?watch=1&allowWatchBookmarks=true"
            "&fieldSelector=metadata.name%3Dpair&resourceVersion=1%262%0A&timeoutSeconds=30");
}

TEST(KubeApi, ReadsALease) {
  const KubeLease lease = decode(plain());
  EXPECT_EQ(lease.resource_version, "17");
  EXPECT_EQ(lease.holder, "engine-0_0123456789abcdef");
  EXPECT_EQ(lease.duration, seconds(15));
  EXPECT_EQ(lease.transitions, 4U);
  EXPECT_EQ(lease.acquire_time, "2026-11-21T05:33:00.000001Z");
  EXPECT_EQ(lease.renew_time, "2026-11-21T05:34:00.000002Z");
}

TEST(KubeApi, WhatALeaseDoesNotSayIsNothing) {
  json bare = plain();
  for (const json& spec : {json::object(), json(), json{{"holderIdentity", nullptr}}}) {
    bare["spec"] = spec;
    const KubeLease lease = decode(bare);
    EXPECT_EQ(lease.holder, "");
    EXPECT_FALSE(lease.duration);
    EXPECT_EQ(lease.transitions, 0U);
    EXPECT_EQ(lease.renew_time, "");
  }
  bare.erase("spec");
  EXPECT_EQ(decode(bare).transitions, 0U);
}

TEST(KubeApi, AnotherObjectIsRefused) {
  const auto refused = [](const char* pointer, const json& value) {
    json object = plain();
    object[json::json_pointer(pointer)] = value;
    EXPECT_EQ(refusal(object.dump()), ExitStatus::kProtocol) << pointer << " " << value;
  };
  refused("/kind", "Status");
  refused("/kind", 1);
  refused("/apiVersion", "coordination.k8s.io/v1beta1");
  refused("/metadata", json::array());
  refused("/metadata/name", "other");
  refused("/metadata/namespace", "other");
  refused("/metadata/resourceVersion", "");
  refused("/metadata/resourceVersion", 17);
  refused("/metadata/resourceVersion", std::string(257, '1'));
  refused("/spec", "held");
  refused("/spec/holderIdentity", 1);
  refused("/spec/leaseDurationSeconds", "15");
  refused("/spec/leaseDurationSeconds", -1);
  refused("/spec/leaseDurationSeconds", 1.5);
  refused("/spec/leaseTransitions", 1ULL << 31);
  refused("/spec/leaseTransitions", -1);
  refused("/spec/leaseTransitions", true);
  refused("/spec/renewTime", 0);
}

TEST(KubeApi, EveryTruncationIsRefused) {
  const std::string whole = plain().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(refusal(whole.substr(0, size)), ExitStatus::kProtocol) << size;
  }
  EXPECT_EQ(refusal(whole), ExitStatus::kOk);
}

TEST(KubeApi, DeepLongAndBrokenAnswersAreRefused) {
  json object = plain();
  object["metadata"]["annotations"]["a"] = std::string(1 << 20, 'x');
  EXPECT_EQ(refusal(object.dump()), ExitStatus::kProtocol);
  const std::string many(100000, '[');
  EXPECT_EQ(refusal(many), ExitStatus::kProtocol);
  EXPECT_EQ(refusal("{\"a\":" + many), ExitStatus::kProtocol);
  EXPECT_EQ(refusal("{\"a\":" + many + std::string(100000, ']') + "}"), ExitStatus::kProtocol);
  EXPECT_EQ(refusal("<html></html>"), ExitStatus::kProtocol);
  EXPECT_EQ(refusal("[]"), ExitStatus::kProtocol);
  EXPECT_EQ(refusal("{\"kind\":\"\xff\"}"), ExitStatus::kProtocol);
}

TEST(KubeApi, NewLeaseHasAllThatAHolderNeeds) {
  const auto now = system_clock::time_point(seconds(1000000000)) + microseconds(42);
  const KubeClaim claim{"engine-0_x", seconds(15), 1, now, now};
  EXPECT_EQ(json::parse(encode_lease(kName, claim)),
            json::parse(R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
              "metadata":{"name":"pair","namespace":"ns"},
              "spec":{"holderIdentity":"engine-0_x","leaseDurationSeconds":15,"leaseTransitions":1,
                "acquireTime":"2001-09-09T01:46:40.000042Z",
                "renewTime":"2001-09-09T01:46:40.000042Z"}})"));
}

TEST(KubeApi, UpdateKeepsWhatOthersWrote) {
  json object = plain();
  object["metadata"]["labels"] = {{"team", "blue"}};
  object["metadata"]["uid"] = "u";
  object["metadata"]["managedFields"] = {{{"manager", "kubectl"}}};
  object["spec"]["strategy"] = "OldestEmulationVersion";
  object["more"] = {1, 2.5, -3, nullptr, 18446744073709551615ULL};
  const auto now = system_clock::time_point(seconds(1000000000));
  const KubeClaim claim{"b", seconds(2), 5, std::nullopt, now};
  json wanted = object;
  wanted["spec"]["holderIdentity"] = "b";
  wanted["spec"]["leaseDurationSeconds"] = 2;
  wanted["spec"]["leaseTransitions"] = 5;
  wanted["spec"]["renewTime"] = "2001-09-09T01:46:40.000000Z";
  EXPECT_EQ(json::parse(encode_lease(decode(object), claim)), wanted);
  object["spec"] = nullptr;
  EXPECT_EQ(json::parse(encode_lease(decode(object), claim))["spec"]["leaseTransitions"], 5);
}

TEST(KubeApi, StatusIsAMessage) {
  const auto message = [](const std::string& body) {
    const std::optional<KubeStatus> status = decode_status(body);
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
  EXPECT_TRUE(says_no_lease(absent.dump(), kName));
  EXPECT_FALSE(says_no_namespace(absent.dump(), kName));
  EXPECT_FALSE(says_no_lease("404 page not found", kName));
  const auto another = [&](const char* pointer, const json& value) {
    json object = absent;
    object[json::json_pointer(pointer)] = value;
    return object.dump();
  };
  EXPECT_FALSE(says_no_lease(another("/kind", "Lease"), kName));
  EXPECT_FALSE(says_no_lease(another("/reason", "Forbidden"), kName));
  EXPECT_FALSE(says_no_lease(another("/details", json::object()), kName));
  EXPECT_FALSE(says_no_lease(another("/details", nullptr), kName));
  EXPECT_FALSE(says_no_lease(another("/details/name", "other"), kName));
  const std::string no_namespace =
      another("/details", json{{"kind", "namespaces"}, {"name", "ns"}});
  EXPECT_FALSE(says_no_lease(no_namespace, kName));
  EXPECT_TRUE(says_no_namespace(no_namespace, kName));
}

TEST(KubeApi, WatchTellsChangesAndWhenToLookAnew) {
  using Kind = WatchEvent::Kind;
  const auto event = [](const json& type, const json& object) {
    return decode_watch_event(json{{"type", type}, {"object", object}}.dump(), kName);
  };
  EXPECT_EQ(event("MODIFIED", plain()).kind, Kind::kChanged);
  EXPECT_EQ(event("ADDED", plain()).lease.transitions, 4U);
  EXPECT_EQ(event("BOOKMARK", {{"kind", "Lease"}}).kind, Kind::kBookmark);
  EXPECT_EQ(event("DELETED", plain()).kind, Kind::kLookAnew);
  EXPECT_EQ(event("ERROR", {{"kind", "Status"}, {"code", 410}}).kind, Kind::kLookAnew);
  EXPECT_EQ(event("LATER", plain()).kind, Kind::kLookAnew);
  EXPECT_EQ(status_of([&] { event("MODIFIED", json::object()); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { event(1, plain()); }), ExitStatus::kProtocol);
  EXPECT_EQ(status_of([&] { decode_watch_event("x", kName); }), ExitStatus::kProtocol);
}

TEST(KubeApi, TimesHaveSixDigits) {
  const auto time = system_clock::time_point(seconds(1000000000)) + microseconds(120);
  EXPECT_EQ(format_micro_time(time), "2001-09-09T01:46:40.000120Z");
  EXPECT_EQ(format_micro_time(system_clock::time_point(seconds(0))), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(parse_micro_time("2001-09-09T01:46:40.000120Z"), time);
  EXPECT_EQ(parse_micro_time("2001-09-09T01:46:40Z"), time - microseconds(120));
  EXPECT_EQ(parse_micro_time("2001-09-09T01:46:40.00012Z"), time);
  EXPECT_EQ(parse_micro_time("2001-09-09T01:46:40.000120000Z"), time);
  for (const char* bad :
       {"", "Z", "2001-09-09T01:46:40", "2001-09-09T01:46:40.Z", "2001-09-09T01:46:40.0000000001Z",
        "2001-09-09T01:46:40,5Z", "2001-02-30T01:46:40.000000Z", "2001-09-09T01:46:40.-1Z",
        "2001-09-09T01:46:40.000000+00:00", "0000-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.999999Z", "2001-09-09 01:46:40.000000Z"}) {
    EXPECT_FALSE(parse_micro_time(bad)) << bad;
  }
}

TEST(KubeApi, IdIsShownWithoutItsDigits) {
  const std::string digits = "0123456789abcdef";
  EXPECT_EQ(make_identity("engine-0", digits), "engine-0_0123456789abcdef");
  EXPECT_EQ(id_of_identity(make_identity("engine-0", digits)), "engine-0");
  EXPECT_EQ(id_of_identity(make_identity("a_b", digits)), "a_b");
  for (const char* whole : {"", "engine-0", "_0123456789abcdef", "a_0123456789abcdeF",
                            "a-0123456789abcdef", "host_8d3c1f0a-5b7e-4c1d-9a53-0d2f7c2b9e11"}) {
    EXPECT_EQ(id_of_identity(whole), whole);
  }
  EXPECT_EQ(id_of_identity("a\x1b[2Jb\nc"), "a[2Jb");
}

}  // namespace
}  // namespace fo::lock
