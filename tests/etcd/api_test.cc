#include "etcd/api.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "support/failure.h"
#include "text/base64.h"

namespace fo::etcd {
namespace {

using base::ExitStatus;
using nlohmann::json;
using std::chrono::seconds;
using text::encode_base64;

constexpr LeaseId kLease = 0x2040a2019671c806;
const std::string kHeader =
    R"("header":{"cluster_id":"324952591200643719","member_id":"1","revision":"50","raft_term":"2"})";

json body_of(const Request& request) { return json::parse(request.body); }

template <typename Call>
void expect_refused(const Call& call) {
  EXPECT_EQ(test::failure_of([&] { static_cast<void>(call()); }).status, ExitStatus::kProtocol);
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

TEST(EtcdApi, EventsAreRead) {
  const auto message = [](const std::string& members) {
    return decode_watch(R"({"result":{)" + kHeader + members + "}}");
  };
  const auto tells_nothing = [](const WatchMessage& one) {
    return one.events.empty() && one.compacted == 0 && !one.is_ended;
  };
  EXPECT_TRUE(tells_nothing(message(R"(,"created":true)")));
  EXPECT_TRUE(message(R"(,"created":true)").is_created);
  EXPECT_TRUE(tells_nothing(message("")));
  EXPECT_EQ(message("").revision, 50U);
  const WatchMessage put = message(
      R"(,"events":[{"kv":{"key":"eA==","value":"djE=","create_revision":"7","mod_revision":"9",)"
      R"("version":"2","lease":"3"}}])");
  ASSERT_EQ(put.events.size(), 1U);
  EXPECT_EQ(put.events[0].kind, Event::Kind::kPut);
  EXPECT_EQ(put.events[0].key, (KeyValue{"x", "v1", 7, 9, 3}));
  EXPECT_FALSE(put.is_fragment);
  const WatchMessage both = message(R"(,"fragment":true,"events":[{"kv":{"mod_revision":"8"}},)"
                                    R"({"type":"DELETE","kv":{"key":"eA==","mod_revision":"9"}}])");
  ASSERT_EQ(both.events.size(), 2U);
  EXPECT_EQ(both.events[0].kind, Event::Kind::kPut);
  EXPECT_EQ(both.events[1].kind, Event::Kind::kDelete);
  EXPECT_EQ(both.events[1].key.key, "x");
  EXPECT_TRUE(both.is_fragment);
  EXPECT_EQ(message(R"(,"canceled":true,"compact_revision":"4")").compacted, 4U);
  const WatchMessage ended = message(R"(,"created":true,"canceled":true,"cancel_reason":"why")");
  EXPECT_TRUE(ended.is_ended);
  EXPECT_EQ(ended.reason, "why");
  const WatchMessage refused =
      decode_watch(R"({"error":{"grpc_code":14,"http_code":503,"message":"no leader"}})");
  EXPECT_TRUE(refused.is_ended);
  EXPECT_EQ(refused.reason, "no leader");
  expect_refused([] { return decode_watch(""); });
  expect_refused([] { return decode_watch(R"({"result":{"events":{}}})"); });
  for (const char* event :
       {"{}", "7", R"({"kv":{"key":"eA=="}})", R"({"kv":{"key":"?","mod_revision":"1"}})",
        R"({"kv":{"mod_revision":"-1"}})", R"({"kv":{"mod_revision":7}})",
        R"({"type":7,"kv":{"mod_revision":"7"}})"}) {
    SCOPED_TRACE(event);
    expect_refused([&] { return message(std::string(R"(,"events":[)") + event + "]"); });
  }
}

TEST(EtcdApi, PrefixesEndWhereTheirLastByteIsOneHigher) {
  const std::string everything(1, '\0');
  EXPECT_EQ(keys_with_prefix("a/"), (KeyRange{"a/", "a0"}));
  EXPECT_EQ(keys_with_prefix("a\xff"), (KeyRange{"a\xff", "b"}));
  EXPECT_EQ(keys_with_prefix("\xff\xff"), (KeyRange{"\xff\xff", everything}));
  EXPECT_EQ(keys_with_prefix(""), (KeyRange{everything, everything}));
  EXPECT_EQ(keys_with_prefix("\x7f"), (KeyRange{"\x7f", "\x80"}));
}

TEST(EtcdApi, RangesSayOnlyWhatTheyAskFor) {
  EXPECT_EQ(range({{"x"}}).path, "/v3/kv/range");
  EXPECT_EQ(body_of(range({{"x"}})), (json{{"key", "eA=="}}));
  const Range all{keys_with_prefix("a/"), 7, 100, true, Range::Order::kNewestFirst, 41};
  EXPECT_EQ(body_of(range(all)), (json{{"key", encode_base64("a/")},
                                       {"range_end", encode_base64("a0")},
                                       {"revision", "7"},
                                       {"limit", "100"},
                                       {"keys_only", true},
                                       {"max_create_revision", "41"},
                                       {"sort_target", "CREATE"},
                                       {"sort_order", "DESCEND"}}));
}

TEST(EtcdApi, FoundKeysAreReadUpToTheLimit) {
  const std::string two = "{" + kHeader +
                          R"(,"kvs":[{"key":"eA==","value":"djE=","create_revision":"7",)"
                          R"("mod_revision":"9","lease":"3"},{"create_revision":"8"}],)"
                          R"("more":true,"count":"5"})";
  for (const std::uint64_t limit : {0U, 2U}) {
    const Found found = decode_range(two, limit);
    EXPECT_EQ(found.revision, 50U);
    EXPECT_TRUE(found.has_more);
    ASSERT_EQ(found.keys.size(), 2U);
    EXPECT_EQ(found.keys[0], (KeyValue{"x", "v1", 7, 9, 3}));
  }
  expect_refused([&] { return decode_range(two, 1); });
  EXPECT_TRUE(decode_range("{" + kHeader + "}", 1).keys.empty());
  expect_refused([&] { return decode_range("{" + kHeader + R"(,"kvs":[{}]})", 1); });
  for (std::size_t size = 0; size < two.size(); ++size) {
    expect_refused([&] { return decode_range(two.substr(0, size), 2); });
  }
}

TEST(EtcdApi, TransactionsSayWhatHasToBeTrueAndWhatIsDone) {
  using Target = Compare::Target;
  using Relation = Compare::Relation;
  const Transaction one{{{{"a"}, Target::kCreated, Relation::kEqual, 0},
                         {{"b"}, Target::kModified, Relation::kEqual, 7},
                         {keys_with_prefix("d"), Target::kLease, Relation::kGreater, 8}},
                        {Put{"a", "1", 5}, Put{"b", "", 0}, Delete{keys_with_prefix("d")}},
                        {Range{{"a"}}}};
  EXPECT_EQ(transaction(one).path, "/v3/kv/txn");
  EXPECT_EQ(
      body_of(transaction(one)),
      json::parse(
          R"({"compare":[{"key":"YQ==","target":"CREATE","result":"EQUAL","create_revision":"0"},
            {"key":"Yg==","target":"MOD","result":"EQUAL","mod_revision":"7"},
            {"key":"ZA==","range_end":"ZQ==","target":"LEASE","result":"GREATER","lease":"8"}],
          "success":[{"request_put":{"key":"YQ==","value":"MQ==","lease":"5"}},
            {"request_put":{"key":"Yg==","value":""}},
            {"request_delete_range":{"key":"ZA==","range_end":"ZQ=="}}],
          "failure":[{"request_range":{"key":"YQ=="}}]})"));
  const Outcome outcome = decode_transaction(
      "{" + kHeader +
      R"(,"succeeded":true,"responses":[{"response_put":{}},{"response_delete_range":)"
      R"({"deleted":"2"}},{"response_range":{"kvs":[{"key":"eA==","create_revision":"7"}]}}]})");
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_EQ(outcome.revision, 50U);
  ASSERT_EQ(outcome.results.size(), 3U);
  EXPECT_EQ(outcome.results[1].deleted, 2U);
  EXPECT_EQ(keys_in(outcome, 2).at(0).key, "x");
  expect_refused([&] { return keys_in(outcome, 3); });
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
  EXPECT_EQ(kind(400, error(11, "etcdserver: mvcc: required revision has been compacted")),
            Kind::kCompacted);
  EXPECT_EQ(kind(401, error(16, "etcdserver: invalid auth token")), Kind::kNotAuthenticated);
  EXPECT_EQ(kind(400, error(3, "etcdserver: revision of auth store is old")),
            Kind::kNotAuthenticated);
  EXPECT_EQ(kind(412, error(9, "etcdserver: authentication is not enabled")), Kind::kNoUsers);
  EXPECT_EQ(kind(403, error(7, "etcdserver: permission denied")), Kind::kNotPermitted);
  EXPECT_EQ(kind(400, error(3, "etcdserver: user name is empty")), Kind::kNotPermitted);
  EXPECT_EQ(kind(400, error(3, "etcdserver: authentication failed, invalid user ID or password")),
            Kind::kNotPermitted);
  EXPECT_EQ(kind(503, error(14, "etcdserver: request timed out")), Kind::kTransient);
  EXPECT_EQ(kind(400, error(8, "etcdserver: too many requests")), Kind::kTransient);
  EXPECT_EQ(kind(504, error(4, "context deadline exceeded")), Kind::kTransient);
  EXPECT_EQ(kind(200, R"({"error":{"grpc_code":14,"message":"no leader"}})"), Kind::kTransient);
  EXPECT_EQ(kind(502, "<html>Bad Gateway</html>"), Kind::kTransient);
  EXPECT_EQ(kind(404, "Not Found\n"), Kind::kOther);
  EXPECT_EQ(find_refusal(404, "Not Found\n")->reason, "HTTP status 404");
  EXPECT_EQ(kind(400, error(3, "invalid character")), Kind::kOther);
  EXPECT_EQ(kind(200, R"({"error":7})"), Kind::kOther);
  EXPECT_EQ(kind(400, R"({"code":99999999999999999999,"message":[]})"), Kind::kOther);
}

}  // namespace
}  // namespace fo::etcd
