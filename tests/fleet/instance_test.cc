#include "fleet/record/instance.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

using base::ExitStatus;
using fo::test::failure_of;
using fo::test::status_of;

constexpr char kId[] = "00112233445566778899aabbccddeeff";

Instance full() {
  return {.id = kId,
          .url = "http://10.0.0.7:8000",
          .model = "llama",
          .card = "sha256:1234",
          .kv_abi = "nixl-fp8-16-v1",
          .life = Life::kReady,
          .slots = 256,
          .kv_tokens = 1'000'000,
          .generation = 7,
          .host = "node-1",
          .pid = 4711,
          .gpus = {"0000:17:00.0"},
          .started_at = "2026-11-21T05:33:00.123Z",
          .labels = {{"zone", "a"}}};
}

Record record(std::string text) {
  return {instance_key({"llama", "worker", "generate"}, kId), std::move(text)};
}

TEST(Instance, IsReadAsItWasWritten) {
  const Instance before = full();
  const Instance after = decode_instance(record(encode(before)));
  EXPECT_EQ(encode(after), encode(before));
  EXPECT_EQ(after.url, before.url);
  EXPECT_EQ(after.life, Life::kReady);
  EXPECT_EQ(after.slots, before.slots);
  EXPECT_EQ(after.gpus, before.gpus);
  EXPECT_EQ(after.labels, before.labels);
  EXPECT_EQ(nlohmann::json::parse(encode(before)).at("version"), 1);
}

TEST(Instance, IgnoresUnknownMembers) {
  const std::string text = std::string(R"({"id":")") + kId +
                           R"(","url":"http://127.0.0.1:1","life":"spare","future":{"a":[1]}})";
  EXPECT_EQ(decode_instance(record(text)).life, Life::kSpare);
}

TEST(Instance, OtherTextsAreNone) {
  const auto reason = [](const std::string& members) {
    return failure_of([&] {
             decode_instance(record(std::string(R"({"id":")") + kId + R"(")" + members + "}"));
           })
        .message;
  };
  const std::string begin = "record 'instances/llama/worker/generate/" + std::string(kId) + "': ";
  EXPECT_EQ(reason(""), begin + "missing url");
  EXPECT_EQ(reason(R"(,"url":7)"), begin + "url: expected a string");
  EXPECT_EQ(reason(R"(,"url":"u")"), begin + "missing life");
  EXPECT_EQ(reason(R"(,"url":"u","life":"happy")"), begin + "life is 'happy'");
  EXPECT_EQ(reason(R"(,"url":"u","life":"ready","slots":-1)"),
            begin + "slots: expected a non-negative integer");
  EXPECT_EQ(reason(R"(,"url":"u","life":"ready","gpus":"0000:3b:00.0")"),
            begin + "gpus: expected a list");
  EXPECT_EQ(reason(R"(,"url":"u","life":"ready","gpus":[1])"), begin + "gpus: expected strings");
  EXPECT_EQ(reason(R"(,"url":"u","life":"ready","labels":{"group":1})"),
            begin + "labels: expected strings");
  Record other = record(encode(full()));
  other.key = "routers/" + std::string(kId);
  EXPECT_EQ(status_of([&] { decode_instance(other); }), ExitStatus::kBadData);
}

TEST(Instance, HasAKeyWithItsEndpoint) {
  const EndpointId endpoint{"llama-0123456789abcdef", "worker-decode", "generate"};
  const std::string key = instance_key(endpoint, kId);
  EXPECT_EQ(key, std::string("instances/llama-0123456789abcdef/worker-decode/generate/") + kId);
  EXPECT_EQ(endpoint_of(key), endpoint);
  EXPECT_FALSE(endpoint_of("cards/x"));
  EXPECT_FALSE(endpoint_of("instances/UPPER/worker/generate/x"));
}

TEST(Instance, IdsAre128RandomBits) {
  EXPECT_TRUE(is_instance_id(make_instance_id()));
  EXPECT_NE(make_instance_id(), make_instance_id());
  EXPECT_FALSE(is_instance_id(""));
  EXPECT_FALSE(is_instance_id(std::string(32, 'F')));
  EXPECT_FALSE(is_instance_id(std::string(31, '0')));
}

TEST(Instance, AWorkerChangesItsLife) {
  std::string text = encode(full());
  text = with_life(text, Life::kDraining);
  EXPECT_EQ(life_of(text), Life::kDraining);
  text = with_life(text, Life::kGone);
  EXPECT_EQ(life_of(text), Life::kGone);
  EXPECT_EQ(life_of(with_life(text, Life::kReady)), Life::kGone);
}

TEST(Instance, ADrainOutlivesTheWorkersOwnChanges) {
  std::string text = drained(with_life(encode(full()), Life::kStarting));
  EXPECT_EQ(life_of(text), Life::kDraining);
  EXPECT_EQ(drained(text), text);
  const auto is_drained = [](const std::string& of) {
    return decode_instance(record(of)).is_drained;
  };
  EXPECT_TRUE(is_drained(text));
  EXPECT_FALSE(is_drained(undrained(text)));
  EXPECT_FALSE(is_drained(with_life(encode(full()), Life::kDraining)));
  text = with_life(text, Life::kReady);
  EXPECT_EQ(life_of(text), Life::kDraining);
  EXPECT_EQ(life_of(undrained(text)), Life::kReady);
  EXPECT_EQ(undrained(undrained(text)), undrained(text));
  EXPECT_EQ(undrained(drained(encode(full()))), encode(full()));
  EXPECT_EQ(life_of(with_life(text, Life::kGone)), Life::kGone);
  EXPECT_EQ(life_of(undrained(with_life(text, Life::kGone))), Life::kGone);
}

TEST(Instance, ChangesKeepUnknownMembers) {
  const std::string text = R"({"future":[1,2],"life":"ready"})";
  const nlohmann::json changed = nlohmann::json::parse(with_life(text, Life::kSpare));
  EXPECT_EQ(changed.at("future"), nlohmann::json::parse("[1,2]"));
  const nlohmann::json labelled = nlohmann::json::parse(with_label(text, "zone", "b"));
  EXPECT_EQ(labelled.at("labels").at("zone"), "b");
  EXPECT_TRUE(nlohmann::json::parse(with_label(labelled.dump(), "zone", "")).at("labels").empty());
  EXPECT_EQ(status_of([] { drained("no JSON"); }), ExitStatus::kBadData);
  EXPECT_EQ(status_of([] { drained("{}"); }), ExitStatus::kBadData);
}

}  // namespace
}  // namespace fo::fleet
