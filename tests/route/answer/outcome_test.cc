#include "route/answer/outcome.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace fo::test {
namespace {

using route::Attempt;
using route::AttemptEnd;
using route::classify;
using route::Outcome;
using route::OutcomeClass;
using std::chrono::seconds;

OutcomeClass class_of(AttemptEnd end, bool others_moved = false) {
  return classify({.end = end, .others_moved = others_moved}).kind;
}

OutcomeClass class_of_status(int status, int error_code = 0) {
  return classify({.end = AttemptEnd::kStatus, .status = status, .error_code = error_code}).kind;
}

OutcomeClass class_of_error_frame(int code) {
  return classify({.end = AttemptEnd::kErrorFrame, .error_code = code}).kind;
}

TEST(Outcome, ARefusedConnectionIsNoFault) {
  EXPECT_EQ(class_of(AttemptEnd::kRefused), OutcomeClass::kRefused);
}

TEST(Outcome, ALackOfDescriptorsSaysNothingOfTheWorker) {
  const Outcome outcome = classify({.end = AttemptEnd::kExhausted});
  EXPECT_EQ(outcome.kind, OutcomeClass::kExhausted);
  EXPECT_TRUE(outcome.is_retryable);
  EXPECT_EQ(to_string(outcome.kind), "exhausted");
  EXPECT_EQ(route::to_string(OutcomeClass::kNeutral), "neutral");
}

TEST(Outcome, OnlyA503IsUnavailability) {
  for (const int status : {429, 503, 529}) {
    EXPECT_EQ(classify({.end = AttemptEnd::kStatus, .status = status}).is_unavailable,
              status == 503);
  }
}

TEST(Outcome, A404MayMeanWhatTheClientAsksFor) {
  route::Attempt attempt{.end = AttemptEnd::kStatus, .status = 404};
  EXPECT_EQ(classify(attempt).kind, OutcomeClass::kMisconfigured);
  attempt.may_lack_object = true;
  EXPECT_EQ(classify(attempt).kind, OutcomeClass::kNeutral);
  EXPECT_FALSE(classify(attempt).is_retryable);
  attempt.status = 401;
  EXPECT_EQ(classify(attempt).kind, OutcomeClass::kMisconfigured);
}

TEST(Outcome, AKeyMayBeTheClients) {
  for (const int status : {401, 403, 404}) {
    route::Attempt attempt{.end = AttemptEnd::kStatus, .status = status};
    EXPECT_EQ(classify(attempt).kind, OutcomeClass::kMisconfigured);
    attempt.gets_client_key = true;
    const bool is_answer = status != 404;
    EXPECT_EQ(classify(attempt).kind == OutcomeClass::kNeutral, is_answer) << status;
    EXPECT_EQ(classify(attempt).is_retryable, !is_answer) << status;
  }
}

TEST(Outcome, WhatEndsEarlyIsAFault) {
  EXPECT_EQ(class_of(AttemptEnd::kBroken), OutcomeClass::kFault);
  EXPECT_EQ(class_of(AttemptEnd::kAborted), OutcomeClass::kFault);
  EXPECT_EQ(class_of_status(502), OutcomeClass::kFault);
  EXPECT_EQ(class_of_status(504), OutcomeClass::kFault);
}

TEST(Outcome, FaultsOfAnswersAreEndsOfAttempts) {
  using Fault = route::AnswerFault::Kind;
  EXPECT_EQ(end_of(Fault::kTruncated), AttemptEnd::kBroken);
  EXPECT_EQ(end_of(Fault::kInvalid), AttemptEnd::kBroken);
  EXPECT_EQ(end_of(Fault::kAborted), AttemptEnd::kAborted);
  EXPECT_EQ(end_of(Fault::kStatus), AttemptEnd::kStatus);
  EXPECT_EQ(end_of(Fault::kErrorFrame), AttemptEnd::kErrorFrame);
}

TEST(Outcome, AnErrorIsJudgedByItsCode) {
  for (const int code : {0, 500, 501, 503, 599}) {
    EXPECT_EQ(class_of_error_frame(code), OutcomeClass::kSuspected) << code;
    EXPECT_EQ(class_of_status(500, code), OutcomeClass::kSuspected) << code;
  }
  for (const int code : {400, 404, 422, 429}) {
    EXPECT_EQ(class_of_error_frame(code), OutcomeClass::kNeutral) << code;
    EXPECT_EQ(class_of_status(500, code), OutcomeClass::kNeutral) << code;
  }
}

TEST(Outcome, ASuspicionIsAFaultIfAnotherWorkerSucceeds) {
  const Attempt failed{.end = AttemptEnd::kStatus, .status = 500};
  EXPECT_EQ(resolve_suspected(failed, {.end = AttemptEnd::kComplete}), OutcomeClass::kFault);
  EXPECT_EQ(resolve_suspected(failed, failed), OutcomeClass::kNeutral);
  const Attempt frame{.end = AttemptEnd::kErrorFrame, .error_code = 500};
  EXPECT_EQ(resolve_suspected(frame, frame), OutcomeClass::kNeutral);
  EXPECT_EQ(resolve_suspected(failed, frame), OutcomeClass::kSuspected);
  for (const AttemptEnd end :
       {AttemptEnd::kRefused, AttemptEnd::kBroken, AttemptEnd::kDeadline, AttemptEnd::kStalled}) {
    EXPECT_EQ(resolve_suspected(failed, {.end = end}), OutcomeClass::kSuspected);
  }
}

TEST(Outcome, AStallOfAllStreamsIsAFault) {
  EXPECT_EQ(class_of(AttemptEnd::kStalled), OutcomeClass::kFault);
  EXPECT_EQ(class_of(AttemptEnd::kStalled, true), OutcomeClass::kNeutral);
  EXPECT_TRUE(classify({.end = AttemptEnd::kStalled, .others_moved = true}).is_retryable);
}

TEST(Outcome, AMissingFirstTokenMayBeALongQueue) {
  EXPECT_EQ(class_of(AttemptEnd::kNoFirstToken), OutcomeClass::kFault);
  EXPECT_EQ(class_of(AttemptEnd::kNoFirstToken, true), OutcomeClass::kBackpressure);
}

TEST(Outcome, BackpressureLastsAsLongAsTheWorkerSays) {
  const auto pause = [](int status, std::optional<base::Duration> retry_after) {
    const Outcome outcome =
        classify({.end = AttemptEnd::kStatus, .status = status, .retry_after = retry_after});
    EXPECT_EQ(outcome.kind, OutcomeClass::kBackpressure) << status;
    return outcome.pause;
  };
  for (const int status : {429, 503, 529}) EXPECT_EQ(pause(status, std::nullopt), seconds(1));
  EXPECT_EQ(pause(429, seconds(7)), seconds(7));
  EXPECT_EQ(pause(503, seconds(3600)), seconds(30));
}

TEST(Outcome, RefusalsOfOurConfigurationAreTriedElsewhere) {
  for (const int status : {401, 403, 404}) {
    EXPECT_EQ(class_of_status(status), OutcomeClass::kMisconfigured) << status;
    EXPECT_TRUE(classify({.end = AttemptEnd::kStatus, .status = status}).is_retryable);
  }
}

TEST(Outcome, OtherEndsSayNothingOfTheWorker) {
  for (const int status : {301, 400, 405, 408, 413, 422}) {
    EXPECT_EQ(class_of_status(status), OutcomeClass::kNeutral) << status;
    EXPECT_FALSE(classify({.end = AttemptEnd::kStatus, .status = status}).is_retryable);
  }
  EXPECT_EQ(class_of(AttemptEnd::kDeadline), OutcomeClass::kNeutral);
  EXPECT_FALSE(classify({.end = AttemptEnd::kDeadline}).is_retryable);
  EXPECT_EQ(class_of(AttemptEnd::kComplete), OutcomeClass::kSuccess);
}

TEST(Outcome, ARefusedContinuationIsTriedElsewhere) {
  for (const int status : {400, 422}) {
    const Outcome outcome =
        classify({.end = AttemptEnd::kStatus, .status = status, .may_lack_fields = true});
    EXPECT_EQ(outcome.kind, OutcomeClass::kNeutral);
    EXPECT_TRUE(outcome.is_retryable);
  }
}

TEST(Outcome, ThePauseOfAnOverloadedWorkerCanBeSet) {
  const route::OverloadTimes times{.pause = seconds(2), .max_pause = seconds(60)};
  Attempt attempt{.end = AttemptEnd::kStatus, .status = 429};
  EXPECT_EQ(classify(attempt, times).pause, seconds(2));
  attempt.retry_after = seconds(100);
  EXPECT_EQ(classify(attempt, times).pause, seconds(60));
}

}  // namespace
}  // namespace fo::test
