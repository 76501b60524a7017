#include "canary/check/engine_client.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "loop/test_loop.h"
#include "oracle/running_oracle.h"

namespace fo::canary {
namespace {

using fo::oracle::Fault;
using fo::oracle::test::RunningOracle;
using fo::test::in_ms;
using fo::test::soon;
using std::chrono::milliseconds;

Reply asked(const std::string& url, base::Duration first_token, base::Deadline deadline) {
  fo::test::TestLoop loop;
  return loop.run(ask(make_engine_address(url, std::nullopt, {}, "oracle"),
                      {.text = "the", .max_tokens = 8}, first_token, deadline));
}

TEST(EngineClient, AQuestionThatFailsIsMeasuredToo) {
  RunningOracle oracle;
  oracle.set({.fail = {.kind = Fault::Kind::kStall, .first = 2, .last = 2}});
  const Reply stalled = asked(oracle.url(), std::chrono::seconds(30), in_ms(1000));
  EXPECT_EQ(stalled.error, AskError::kLate);
  // The time limit began a little before the question did.
  EXPECT_GE(stalled.whole, milliseconds(500));

  oracle.set({.first_token = milliseconds(40),
              .fail = {.kind = Fault::Kind::kCut, .first = 2, .last = 2}});
  const Reply cut = asked(oracle.url(), std::chrono::seconds(30), soon());
  EXPECT_EQ(cut.error, AskError::kBroken);
  EXPECT_GE(cut.whole, milliseconds(40));
}

TEST(EngineClient, AWholeAnswerIsMeasuredFromTheRequest) {
  RunningOracle oracle({.knobs = {.first_token = milliseconds(20), .gap = milliseconds(5)}});
  const Reply reply = asked(oracle.url(), std::chrono::seconds(30), soon());
  EXPECT_EQ(reply.error, AskError::kNone) << reply.reason;
  EXPECT_GE(reply.first_token, milliseconds(20));
  EXPECT_GE(reply.whole, reply.first_token + milliseconds(5));
}

}  // namespace
}  // namespace fo::canary
