#include "lock/lease/etcd_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/failure.h"
#include "text/base64.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using nlohmann::json;
using text::encode_base64;

constexpr etcd::LeaseId kLease = 0x2040a2019671c806;
const QueuePosition kPosition{"locks/x", kLease, 42};
const std::string kHeader =
    R"("header":{"cluster_id":"324952591200643719","member_id":"1","revision":"50","raft_term":"2"})";

json body_of(const etcd::Request& request) { return json::parse(request.body); }
json body_of(const etcd::Transaction& transaction) {
  return body_of(etcd::transaction(transaction));
}

etcd::Revision decode_enter(const std::string& answer, const QueuePosition& position) {
  return read_enter(etcd::decode_transaction(answer), position);
}
ClaimResult decode_claim(const std::string& answer, const QueuePosition& position) {
  return read_claim(etcd::decode_transaction(answer), position);
}
std::vector<Listed> decode_list(const std::string& answer) {
  return read_list(etcd::decode_range(answer, kMaxQueueListed));
}

std::string encoded_name(const QueuePosition& position) { return encode_base64(position.name()); }

template <typename Call>
void expect_refused(const Call& call) {
  EXPECT_EQ(test::failure_of([&] { static_cast<void>(call()); }).status, ExitStatus::kProtocol);
}

TEST(EtcdQueue, KeyHasTheLeaseInSixteenDigits) {
  EXPECT_EQ(kPosition.name(), "locks/x/2040a2019671c806");
  EXPECT_EQ((QueuePosition{"a", 0xbc, 0}.name()), "a/00000000000000bc");
}

TEST(EtcdQueue, EnteringPutsAKeyOnlyWhereThereIsNone) {
  const etcd::Request request =
      etcd::transaction(enter({"locks/x", kLease, 0}, {"engine-0", "node-1", 71, ""}));
  EXPECT_EQ(request.path, "/v3/kv/txn");
  const json body = body_of(request);
  EXPECT_EQ(body["compare"], json::array({json{{"key", encoded_name(kPosition)},
                                               {"target", "CREATE"},
                                               {"result", "EQUAL"},
                                               {"create_revision", "0"}}}));
  const std::string value = R"({"holder":"engine-0","host":"node-1","pid":71})";
  const json put{{"key", encoded_name(kPosition)},
                 {"value", encode_base64(value)},
                 {"lease", "2324035535425882118"}};
  EXPECT_EQ(body["success"], json::array({json{{"request_put", put}}}));
}

TEST(EtcdQueue, EnteringTellsWhenTheKeyWasCreated) {
  EXPECT_EQ(decode_enter("{" + kHeader + R"(,"succeeded":true,"responses":[{}]})", kPosition), 50U);
  const auto there = [](const std::string& members) {
    return "{" + kHeader + R"(,"responses":[{"response_range":{"kvs":[{)" + members + "}]}}]}";
  };
  EXPECT_EQ(
      decode_enter(there(R"("create_revision":"42","lease":"2324035535425882118")"), kPosition),
      42U);
  for (const std::string& answer :
       {there(R"("create_revision":"42","lease":"1")"), there(R"("create_revision":"42")"),
        there(R"("lease":"2324035535425882118")"), "{" + kHeader + "}",
        "{" + kHeader + R"(,"responses":[{}]})", std::string(R"({"succeeded":true})"),
        "{" + kHeader + R"(,"succeeded":"true"})"}) {
    SCOPED_TRACE(answer);
    expect_refused([&] { return decode_enter(answer, kPosition); });
  }
}

TEST(EtcdQueue, ClaimIsGrantedToTheOldestOnly) {
  const json body = body_of(claim(kPosition, {"engine-0", "", 1, "2026-11-21T05:33:00.123Z"}));
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

TEST(EtcdQueue, ClaimNamesTheKeyBefore) {
  const std::string own = keys(kPosition.name(), "42");
  EXPECT_EQ(decode_claim("{" + kHeader + R"(,"succeeded":true})", kPosition).state,
            ClaimResult::State::kGranted);
  const ClaimResult result = decode_claim(claim_answer(own, keys("locks/x/1", "7")), kPosition);
  EXPECT_EQ(result.state, ClaimResult::State::kWaiting);
  EXPECT_EQ(result.predecessor, "locks/x/1");
  EXPECT_EQ(result.as_of, 50U);
  for (const std::string& gone : {std::string(), keys(kPosition.name(), "43")}) {
    EXPECT_EQ(decode_claim(claim_answer(gone, keys("locks/x/1", "7")), kPosition).state,
              ClaimResult::State::kGone);
  }
  for (const std::string& answer :
       {claim_answer(own, ""), claim_answer(own, keys("locks/y/1", "7")),
        claim_answer(own, keys(kPosition.name(), "42")),
        claim_answer(own, R"("kvs":[{"key":"?","create_revision":"7"}])"),
        "{" + kHeader + R"(,"responses":[{}]})", "{" + kHeader + "}",
        std::string(R"({"succeeded":true})")}) {
    SCOPED_TRACE(answer);
    expect_refused([&] { return decode_claim(answer, kPosition); });
  }
}

TEST(EtcdQueue, CheckPositionComparesOnly) {
  const json body = body_of(check_position(kPosition));
  EXPECT_EQ(body["compare"].size(), 1U);
  EXPECT_TRUE(body["success"].empty());
  EXPECT_TRUE(etcd::decode_transaction("{" + kHeader + R"(,"succeeded":true})").succeeded);
  EXPECT_FALSE(etcd::decode_transaction("{" + kHeader + "}").succeeded);
  expect_refused([] { return etcd::decode_transaction("{}"); });
}

TEST(EtcdQueue, WatchBeginsWhereTheClaimEnded) {
  const etcd::Request request =
      etcd::watch(watch_deletion({ClaimResult::State::kWaiting, "locks/x/1", 50}));
  EXPECT_EQ(request.path, "/v3/watch");
  EXPECT_EQ(body_of(request)["create_request"], (json{{"key", encode_base64("locks/x/1")},
                                                      {"start_revision", "51"},
                                                      {"filters", json::array({"NOPUT"})},
                                                      {"fragment", true},
                                                      {"progress_notify", true}}));
}

TEST(EtcdQueue, ListedKeysOfOthersHaveNoName) {
  const json body = body_of(etcd::range(list("locks/x")));
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

TEST(EtcdQueue, TruncatedAnswersAreRefused) {
  const std::string whole = claim_answer(keys(kPosition.name(), "42"), keys("locks/x/1", "7"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    expect_refused([&] { return decode_claim(whole.substr(0, size), kPosition); });
  }
}

}  // namespace
}  // namespace fo::lock
