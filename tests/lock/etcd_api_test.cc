#include "lock/lease/etcd_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/failure.h"
#include "text/base64.h"

namespace fo::lock::etcd {
namespace {

using base::ExitStatus;
using nlohmann::json;
using std::chrono::seconds;
using text::encode_base64;

constexpr LeaseId kLease = 0x2040a2019671c806;
const Place kPlace{"locks/x", kLease, 42};
const std::string kHeader =
    R"("header":{"cluster_id":"324952591200643719","member_id":"1","revision":"50","raft_term":"2"})";

json body_of(const Request& request) { return json::parse(request.body); }

std::string encoded_name(const Place& place) { return encode_base64(place.name()); }

template <typename Call>
void expect_refused(const Call& call) {
  EXPECT_EQ(test::failure_of([&] { static_cast<void>(call()); }).status, ExitStatus::kProtocol);
}

TEST(EtcdApi, KeyHasTheLeaseInSixteenDigits) {
  EXPECT_EQ(kPlace.name(), "locks/x/2040a2019671c806");
  EXPECT_EQ((Place{"a", 0xbc, 0}.name()), "a/00000000000000bc");
}

TEST(EtcdApi, LeaseRequestsHaveNumbersAsStrings) {
  EXPECT_EQ(grant_lease(kLease, seconds(10)).path, "/v3/lease/grant");
  EXPECT_EQ(grant_lease(kLease, seconds(10)).body, R"({"ID":"2324035535425882118","TTL":"10"})");
  EXPECT_EQ(grant_lease(1, std::chrono::milliseconds(1001)).body, R"({"ID":"1","TTL":"2"})");
  EXPECT_EQ(keep_alive(kLease).path, "/v3/lease/keepalive");
  EXPECT_EQ(keep_alive(kLease).body, R"({"ID":"2324035535425882118"})");
  EXPECT_EQ(revoke_lease(kLease).path, "/v3/lease/revoke");
  EXPECT_EQ(revoke_lease(kLease).body, R"({"ID":"2324035535425882118"})");
}

TEST(EtcdApi, GrantedLeaseIsRead) {
  const std::string granted = "{" + kHeader + R"(,"ID":"2324035535425882118","TTL":"5"})";
  EXPECT_EQ(decode_grant_lease(granted, kLease), seconds(5));
  expect_refused([&] { return decode_grant_lease(granted, 1); });
  for (const char* answer :
       {"", "null", "[]", "{}", "5", R"({"ID":"1"})", R"({"TTL":"1"})", R"({"ID":"0","TTL":"1"})",
        R"({"ID":"-1","TTL":"1"})", R"({"ID":"9223372036854775808","TTL":"1"})",
        R"({"ID":"1","TTL":"-1"})", R"({"ID":"1","TTL":"86401"})", R"({"ID":"1","TTL":"1.5"})",
        R"({"ID":1,"TTL":"1"})", R"({"ID":"1","TTL":["1"]})", R"({"ID":" 1","TTL":"1"})",
        R"({"ID":"1","TTL":"1"}{)"}) {
    SCOPED_TRACE(answer);
    expect_refused([&] { return decode_grant_lease(answer, 1); });
  }
}

TEST(EtcdApi, KeepAliveOfADeadLeaseHasNoTtl) {
  const std::string id = R"("ID":"2324035535425882118")";
  const auto answer = [&](const std::string& members) {
    return R"({"result":{)" + kHeader + "," + members + "}}\n";
  };
  EXPECT_EQ(decode_keep_alive(answer(id + R"(,"TTL":"5")"), kLease), seconds(5));
  EXPECT_EQ(decode_keep_alive(answer(id), kLease), std::nullopt);
  EXPECT_EQ(decode_keep_alive(answer(id + R"(,"TTL":"0")"), kLease), std::nullopt);
  expect_refused([&] { return decode_keep_alive(answer(id + R"(,"TTL":"5")"), 1); });
  expect_refused([&] { return decode_keep_alive(answer(R"("TTL":"5")"), kLease); });
  expect_refused([&] { return decode_keep_alive("{}", kLease); });
  expect_refused([&] { return decode_keep_alive("", kLease); });
}

TEST(EtcdApi, RevokedLeaseIsGoneAsOfARevision) {
  EXPECT_EQ(decode_revoke_lease("{" + kHeader + "}"), 50U);
  expect_refused([] { return decode_revoke_lease("{}"); });
  expect_refused([] { return decode_revoke_lease("<html>"); });
}

TEST(EtcdApi, EnteringPutsAKeyOnlyWhereThereIsNone) {
  const Request request = enter({"locks/x", kLease, 0}, {"engine-0", "node-1", 71, ""});
  EXPECT_EQ(request.path, "/v3/kv/txn");
  const json body = body_of(request);
  EXPECT_EQ(body["compare"], json::array({json{{"key", encoded_name(kPlace)},
                                               {"target", "CREATE"},
                                               {"result", "EQUAL"},
                                               {"create_revision", "0"}}}));
  const std::string value = R"({"holder":"engine-0","host":"node-1","pid":71})";
  const json put{{"key", encoded_name(kPlace)},
                 {"value", encode_base64(value)},
                 {"lease", "2324035535425882118"}};
  EXPECT_EQ(body["success"], json::array({json{{"request_put", put}}}));
}

TEST(EtcdApi, EnteringTellsWhenTheKeyWasCreated) {
  EXPECT_EQ(decode_enter("{" + kHeader + R"(,"succeeded":true,"responses":[{}]})", kPlace), 50U);
  const auto there = [](const std::string& members) {
    return "{" + kHeader + R"(,"responses":[{"response_range":{"kvs":[{)" + members + "}]}}]}";
  };
  EXPECT_EQ(decode_enter(there(R"("create_revision":"42","lease":"2324035535425882118")"), kPlace),
            42U);
  for (const std::string& answer :
       {there(R"("create_revision":"42","lease":"1")"), there(R"("create_revision":"42")"),
        there(R"("lease":"2324035535425882118")"), "{" + kHeader + "}",
        "{" + kHeader + R"(,"responses":[{}]})", std::string(R"({"succeeded":true})"),
        "{" + kHeader + R"(,"succeeded":"true"})"}) {
    SCOPED_TRACE(answer);
    expect_refused([&] { return decode_enter(answer, kPlace); });
  }
}

TEST(EtcdApi, ClaimIsGrantedToTheOldestOnly) {
  const json body = body_of(claim(kPlace, {"engine-0", "", 1, "2026-11-21T05:33:00.123Z"}));
  ASSERT_EQ(body["compare"].size(), 2U);
  EXPECT_EQ(body["compare"][0]["create_revision"], "42");
  EXPECT_EQ(body["compare"][1], (json{{"key", encode_base64("locks/x/")},
                                      {"range_end", encode_base64("locks/x0")},
                                      {"target", "CREATE"},
                                      {"result", "GREATER"},
                                      {"create_revision", "41"}}));
  const auto value =
      text::decode_base64(body["success"][0]["request_put"]["value"].get<std::string>());
  EXPECT_THAT(value.value_or(""), testing::HasSubstr("2026-11-21T05:33:00.123Z"));
  EXPECT_EQ(body["failure"][1]["request_range"]["max_create_revision"], "41");
  EXPECT_EQ(body["failure"][1]["request_range"]["sort_order"], "DESCEND");
}

std::string claim_answer(const std::string& own, const std::string& other) {
  return "{" + kHeader + R"(,"responses":[{"response_range":{)" + own +
         R"(}},{"response_range":{)" + other + "}}]}";
}

std::string keys(const std::string& name, const std::string& created) {
  return R"("kvs":[{"key":")" + encode_base64(name) + R"(","create_revision":")" + created +
         R"("}],"count":"1")";
}

TEST(EtcdApi, ClaimTellsWhoIsInFront) {
  const std::string own = keys(kPlace.name(), "42");
  EXPECT_EQ(decode_claim("{" + kHeader + R"(,"succeeded":true})", kPlace).state,
            Turn::State::kGranted);
  const Turn turn = decode_claim(claim_answer(own, keys("locks/x/1", "7")), kPlace);
  EXPECT_EQ(turn.state, Turn::State::kWaiting);
  EXPECT_EQ(turn.predecessor, "locks/x/1");
  EXPECT_EQ(turn.as_of, 50U);
  for (const std::string& gone : {std::string(), keys(kPlace.name(), "43")}) {
    EXPECT_EQ(decode_claim(claim_answer(gone, keys("locks/x/1", "7")), kPlace).state,
              Turn::State::kGone);
  }
  for (const std::string& answer :
       {claim_answer(own, ""), claim_answer(own, keys("locks/y/1", "7")),
        claim_answer(own, keys(kPlace.name(), "42")),
        claim_answer(own, R"("kvs":[{"key":"?","create_revision":"7"}])"),
        "{" + kHeader + R"(,"responses":[{}]})", "{" + kHeader + "}",
        std::string(R"({"succeeded":true})")}) {
    SCOPED_TRACE(answer);
    expect_refused([&] { return decode_claim(answer, kPlace); });
  }
}

TEST(EtcdApi, LookComparesOnly) {
  const json body = body_of(look(kPlace));
  EXPECT_EQ(body["compare"].size(), 1U);
  EXPECT_TRUE(body["success"].empty());
  EXPECT_TRUE(decode_look("{" + kHeader + R"(,"succeeded":true})"));
  EXPECT_FALSE(decode_look("{" + kHeader + "}"));
  expect_refused([] { return decode_look("{}"); });
}

TEST(EtcdApi, WatchBeginsWhereTheClaimEnded) {
  const Request request = watch_deletion("locks/x/1", 51);
  EXPECT_EQ(request.path, "/v3/watch");
  EXPECT_EQ(body_of(request)["create_request"], (json{{"key", encode_base64("locks/x/1")},
                                                      {"start_revision", "51"},
                                                      {"filters", json::array({"NOPUT"})}}));
}

TEST(EtcdApi, EventsAreRead) {
  const auto kind = [](const std::string& members) {
    return decode_event(R"({"result":{)" + kHeader + members + "}}").kind;
  };
  EXPECT_EQ(kind(R"(,"created":true)"), Event::Kind::kNothing);
  EXPECT_EQ(kind(""), Event::Kind::kNothing);
  EXPECT_EQ(kind(R"(,"events":[{"kv":{"key":"eA=="}}])"), Event::Kind::kNothing);
  EXPECT_EQ(kind(R"(,"events":[{"kv":{}},{"type":"DELETE","kv":{"key":"eA=="}}])"),
            Event::Kind::kDeleted);
  EXPECT_EQ(kind(R"(,"canceled":true,"compact_revision":"4")"), Event::Kind::kCompacted);
  EXPECT_EQ(kind(R"(,"created":true,"canceled":true,"cancel_reason":"why")"), Event::Kind::kEnded);
  const Event refused =
      decode_event(R"({"error":{"grpc_code":14,"http_code":503,"message":"no leader"}})");
  EXPECT_EQ(refused.kind, Event::Kind::kEnded);
  EXPECT_EQ(refused.reason, "no leader");
  expect_refused([] { return decode_event(""); });
  expect_refused([] { return decode_event(R"({"result":{"events":{}}})"); });
}

TEST(EtcdApi, ListedKeysOfOthersHaveNoName) {
  const json body = body_of(list("locks/x"));
  EXPECT_EQ(body["key"], encode_base64("locks/x/"));
  EXPECT_EQ(body["range_end"], encode_base64("locks/x0"));
  EXPECT_TRUE(decode_list("{" + kHeader + "}").empty());
  const auto left = decode_list("{" + kHeader + R"(,"kvs":[{"key":"YS9i","create_revision":"7"},)" +
                                R"({"key":"YS9j","create_revision":"8","lease":"9"}]})");
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].name, "a/b");
  EXPECT_EQ(left[0].lease, 0U);
  EXPECT_EQ(left[1].lease, 9U);
  const auto who = [](const std::string& value) {
    const auto listed = decode_list("{" + kHeader + R"(,"kvs":[{"create_revision":"7","value":")" +
                                    encode_base64(value) + R"("}]})");
    EXPECT_EQ(listed.size(), 1U);
    EXPECT_EQ(listed.at(0).created, 7U);
    return listed.at(0).who;
  };
  const std::string time = "2026-11-21T05:33:00.123Z";
  EXPECT_EQ(who(R"({"holder":"e","host":"h","pid":7,"granted_at":")" + time + R"("})"),
            (Contender{"e", "h", 7, time}));
  EXPECT_EQ(who(R"({"holder":"e"})"), (Contender{"e", "", 0, ""}));
  for (const std::string& value :
       {std::string(), std::string("{}"), std::string("text"), std::string(R"({"holder":7})"),
        std::string(R"({"holder":"a\nb"})"), std::string(R"({"holder":"e","granted_at":"now"})"),
        std::string(R"({"holder":"e","host":7})"),
        R"({"holder":"e","host":")" + std::string(5000, 'h') + R"("})"}) {
    EXPECT_EQ(who(value), Contender{}) << value.substr(0, 50);
  }
  expect_refused([] { return decode_list("{" + kHeader + R"(,"kvs":[{}]})"); });
  expect_refused([] { return decode_list("{}"); });
}

TEST(EtcdApi, PasswordsMayHaveAnyCharacter) {
  const json body = body_of(authenticate("bob", "p\"\\ ä"));
  EXPECT_EQ(body, (json{{"name", "bob"}, {"password", "p\"\\ ä"}}));
  EXPECT_EQ(test::failure_of([] { authenticate("bob", "\xff"); }).status, ExitStatus::kConfig);
}

TEST(EtcdApi, TokenIsWhatAHeaderCanCarry) {
  EXPECT_EQ(decode_token("{" + kHeader + R"(,"token":"WHdvqmpl.30"})"), "WHdvqmpl.30");
  for (const std::string& token : {std::string(), std::string("a\\r\\nb"), std::string("a b"),
                                   std::string("\\u00e4"), std::string(20000, 'x')}) {
    expect_refused([&] { return decode_token(R"({"token":")" + token + R"("})"); });
  }
  expect_refused([&] { return decode_token("{}"); });
}

TEST(EtcdApi, RefusalsAreToldApart) {
  using Kind = Refusal::Kind;
  const auto kind = [](int status, const std::string& answer) {
    const auto refusal = find_refusal(status, answer);
    EXPECT_TRUE(refusal);
    return refusal ? refusal->kind : Kind::kOther;
  };
  const auto error = [](int code, const std::string& message) {
    return R"({"error":")" + message + R"(","message":")" + message + R"(","code":)" +
           std::to_string(code) + "}";
  };
  EXPECT_FALSE(find_refusal(200, "{" + kHeader + "}"));
  EXPECT_FALSE(find_refusal(200, "hello"));
  EXPECT_EQ(kind(404, error(5, "etcdserver: requested lease not found")), Kind::kLeaseNotFound);
  EXPECT_EQ(kind(412, error(9, "etcdserver: lease already exists")), Kind::kLeaseExists);
  EXPECT_EQ(kind(401, error(16, "etcdserver: invalid auth token")), Kind::kNotAuthenticated);
  EXPECT_EQ(kind(400, error(3, "etcdserver: revision of auth store is old")),
            Kind::kNotAuthenticated);
  EXPECT_EQ(kind(412, error(9, "etcdserver: authentication is not enabled")), Kind::kNoUsers);
  EXPECT_EQ(kind(403, error(7, "etcdserver: permission denied")), Kind::kNotPermitted);
  EXPECT_EQ(kind(400, error(3, "etcdserver: user name is empty")), Kind::kNotPermitted);
  EXPECT_EQ(kind(400, error(3, "etcdserver: authentication failed, invalid user ID or password")),
            Kind::kNotPermitted);
  EXPECT_EQ(kind(503, error(14, "etcdserver: request timed out")), Kind::kMayPass);
  EXPECT_EQ(kind(400, error(8, "etcdserver: too many requests")), Kind::kMayPass);
  EXPECT_EQ(kind(504, error(4, "context deadline exceeded")), Kind::kMayPass);
  EXPECT_EQ(kind(200, R"({"error":{"grpc_code":14,"message":"no leader"}})"), Kind::kMayPass);
  EXPECT_EQ(kind(502, "<html>Bad Gateway</html>"), Kind::kMayPass);
  EXPECT_EQ(kind(404, "Not Found\n"), Kind::kOther);
  EXPECT_EQ(find_refusal(404, "Not Found\n")->reason, "HTTP status 404");
  EXPECT_EQ(kind(400, error(3, "invalid character")), Kind::kOther);
  EXPECT_EQ(kind(200, R"({"error":7})"), Kind::kOther);
  EXPECT_EQ(kind(400, R"({"code":99999999999999999999,"message":[]})"), Kind::kOther);
}

TEST(EtcdApi, TruncatedAnswersAreRefused) {
  const std::string whole = claim_answer(keys(kPlace.name(), "42"), keys("locks/x/1", "7"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_refused([&] { return decode_claim(whole.substr(0, size), kPlace); });
  }
}

}  // namespace
}  // namespace fo::lock::etcd
