#include "oracle/knobs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/failure.h"

namespace fo::oracle {
namespace {

using base::ExitStatus;
using fo::test::status_of;
using nlohmann::json;

TEST(OracleKnobs, AreReadBackAsTheyWereSet) {
  Knobs knobs;
  set_knobs(knobs, {{"first_token", "20ms"},
                    {"gap", "3ms"},
                    {"fail", "reset@5-9"},
                    {"chunk", 4},
                    {"slots", "2"},
                    {"random_chunks", true},
                    {"reasoning", "true"},
                    {"logprob_noise", "0.004"},
                    {"wrong_sampler", true},
                    {"token_ids", "refused"}});
  Knobs copy;
  set_knobs(copy, knobs_to_json(knobs));
  EXPECT_EQ(knobs_to_json(copy), knobs_to_json(knobs));
  EXPECT_EQ(copy.first_token, std::chrono::milliseconds(20));
  EXPECT_EQ(copy.fail.kind, Fault::Kind::kReset);
  EXPECT_EQ(copy.fail.first, 5u);
  EXPECT_EQ(copy.fail.last, 9u);
  EXPECT_EQ(copy.chunk, 4u);
  EXPECT_EQ(copy.slots, 2u);
  EXPECT_TRUE(copy.random_chunks && copy.reasoning && copy.wrong_sampler);
  EXPECT_EQ(copy.logprob_noise, 0.004);
  EXPECT_EQ(knobs_to_json(Knobs{})["fail"], "none");
}

TEST(OracleKnobs, AnInvalidValueChangesNothing) {
  for (const char* text :
       {R"({"gap":"1ms","chunk":0})", R"({"gap":"1ms","chunk":4097})", R"({"gap":"1ms","no":1})",
        R"({"gap":"soon"})", R"({"gap":[]})", R"({"gap":"1ms","refuse_status":200})",
        R"({"gap":"1ms","token_ids":"no"})", R"({"gap":"1ms","reasoning":1})", R"([])",
        R"({"gap":"1ms","fail":{}})", R"({"gap":"1ms","logprob_noise":-0.1})",
        R"({"gap":"1ms","logprob_noise":11})", R"({"gap":"1ms","logprob_noise":"0.1x"})"}) {
    Knobs knobs;
    EXPECT_EQ(status_of([&] { set_knobs(knobs, json::parse(text)); }), ExitStatus::kUsage) << text;
    EXPECT_EQ(knobs_to_json(knobs), knobs_to_json({})) << text;
  }
}

TEST(OracleKnobs, FaultsHaveAKindAndAPlace) {
  for (const char* text : {"none", "stall@0", "kill@start", "half@7", "wrong@1-3", "exit@2",
                           "end@3", "error@4", "abort@5", "cut@6", "reset@1000000000"}) {
    EXPECT_EQ(to_text(parse_fault(text)), text);
  }
  for (const char* text : {"", "stall", "stall@", "stall@-1", "stall@3-2", "stall@x", "frob@1",
                           "none@1", "stall@1-", "stall@1-2-3", "stall@ 1", "stall@1000000001"}) {
    EXPECT_EQ(status_of([&] { parse_fault(text); }), ExitStatus::kUsage) << text;
  }
}

}  // namespace
}  // namespace fo::oracle
