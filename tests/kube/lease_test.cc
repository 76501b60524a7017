#include "kube/lease.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "kube/collections.h"
#include "support/failure.h"

namespace fo::kube {
namespace {

using base::ExitStatus;
using nlohmann::json;
using std::chrono::microseconds;
using std::chrono::seconds;
using std::chrono::system_clock;
using test::status_of;

json lease_object() {
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

Lease decode_named(const json& object) { return decode_lease(object.dump(), kLeases, "pair"); }

ExitStatus refusal(const std::string& body) {
  return status_of([&] { decode_lease(body, kLeases, "pair"); });
}

TEST(KubeLease, ReadsALease) {
  const Lease lease = decode_named(lease_object());
  EXPECT_EQ(lease.resource_version, "17");
  EXPECT_EQ(lease.holder, "engine-0_0123456789abcdef");
  EXPECT_EQ(lease.duration, seconds(15));
  EXPECT_EQ(lease.transitions, 4U);
  EXPECT_EQ(lease.acquire_time, "2026-11-21T05:33:00.000001Z");
  EXPECT_EQ(lease.renew_time, "2026-11-21T05:34:00.000002Z");
}

TEST(KubeLease, WhatALeaseDoesNotSayIsNothing) {
  json bare = lease_object();
  for (const json& spec : {json::object(), json(), json{{"holderIdentity", nullptr}}}) {
    bare["spec"] = spec;
    const Lease lease = decode_named(bare);
    EXPECT_EQ(lease.holder, "");
    EXPECT_FALSE(lease.duration);
    EXPECT_EQ(lease.transitions, 0U);
    EXPECT_EQ(lease.renew_time, "");
  }
  bare.erase("spec");
  EXPECT_EQ(decode_named(bare).transitions, 0U);
}

TEST(KubeLease, AnotherObjectIsRefused) {
  const auto refused = [](const char* pointer, const json& value) {
    json object = lease_object();
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

TEST(KubeLease, EveryTruncationIsRefused) {
  const std::string whole = lease_object().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(refusal(whole.substr(0, size)), ExitStatus::kProtocol) << size;
  }
  EXPECT_EQ(refusal(whole), ExitStatus::kOk);
}

TEST(KubeLease, DeepLongAndBrokenAnswersAreRefused) {
  json object = lease_object();
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

TEST(KubeLease, NewLeaseHasAllThatAHolderNeeds) {
  const auto now = system_clock::time_point(seconds(1000000000)) + microseconds(42);
  const Claim claim{"engine-0_x", seconds(15), 1, now, now};
  EXPECT_EQ(json::parse(encode_lease(kLeases, "pair", claim)),
            json::parse(R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease",
              "metadata":{"name":"pair","namespace":"ns"},
              "spec":{"holderIdentity":"engine-0_x","leaseDurationSeconds":15,"leaseTransitions":1,
                "acquireTime":"2001-09-09T01:46:40.000042Z",
                "renewTime":"2001-09-09T01:46:40.000042Z"}})"));
}

TEST(KubeLease, UpdateKeepsWhatOthersWrote) {
  json object = lease_object();
  object["metadata"]["labels"] = {{"team", "blue"}};
  object["metadata"]["uid"] = "u";
  object["metadata"]["managedFields"] = {{{"manager", "kubectl"}}};
  object["spec"]["strategy"] = "OldestEmulationVersion";
  object["more"] = {1, 2.5, -3, nullptr, 18446744073709551615ULL};
  const auto now = system_clock::time_point(seconds(1000000000));
  const Claim claim{"b", seconds(2), 5, std::nullopt, now};
  json wanted = object;
  wanted["spec"]["holderIdentity"] = "b";
  wanted["spec"]["leaseDurationSeconds"] = 2;
  wanted["spec"]["leaseTransitions"] = 5;
  wanted["spec"]["renewTime"] = "2001-09-09T01:46:40.000000Z";
  EXPECT_EQ(json::parse(encode_lease(decode_named(object), claim)), wanted);
  object["spec"] = nullptr;
  EXPECT_EQ(json::parse(encode_lease(decode_named(object), claim))["spec"]["leaseTransitions"], 5);
}

TEST(KubeLease, TimesHaveSixDigits) {
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

}  // namespace
}  // namespace fo::kube
