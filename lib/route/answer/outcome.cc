#include "route/answer/outcome.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace fo::route {
namespace {

constexpr Outcome kFaultElsewhere{.kind = OutcomeClass::kFault, .is_retryable = true};

Outcome backpressure(const std::optional<base::Duration>& retry_after, const OverloadTimes& times) {
  const base::Duration pause =
      std::clamp(retry_after.value_or(times.pause), base::Duration(0), times.max_pause);
  return {.kind = OutcomeClass::kBackpressure, .is_retryable = true, .pause = pause};
}

Outcome classify_error(int code) {
  if (code >= 400 && code < 500) return {};
  return {.kind = OutcomeClass::kSuspected, .is_retryable = true};
}

Outcome classify_status(const Attempt& attempt, const OverloadTimes& times) {
  switch (attempt.status) {
    case 400:
    case 422:
      return {.is_retryable = attempt.may_lack_fields};
    case 401:
    case 403:
    case 404: {
      const bool is_clients =
          attempt.status == 404 ? attempt.may_lack_object : attempt.gets_client_key;
      if (is_clients) return {};
      return {.kind = OutcomeClass::kMisconfigured, .is_retryable = true};
    }
    case 429:
    case 503:
    case 529: {
      Outcome outcome = backpressure(attempt.retry_after, times);
      outcome.is_unavailable = attempt.status == 503;
      return outcome;
    }
    case 502:
    case 504:
      return kFaultElsewhere;
    default:
      return attempt.status >= 500 ? classify_error(attempt.error_code) : Outcome{};
  }
}

}  // namespace

AttemptEnd end_of(AnswerFault::Kind kind) {
  switch (kind) {
    case AnswerFault::Kind::kStatus:
      return AttemptEnd::kStatus;
    case AnswerFault::Kind::kErrorFrame:
      return AttemptEnd::kErrorFrame;
    case AnswerFault::Kind::kAborted:
      return AttemptEnd::kAborted;
    case AnswerFault::Kind::kTooLong:
      return AttemptEnd::kTooLong;
    case AnswerFault::Kind::kTruncated:
    case AnswerFault::Kind::kInvalid:
      break;
  }
  return AttemptEnd::kBroken;
}

std::string_view to_string(OutcomeClass kind) {
  constexpr std::array<std::string_view, 8> kNames{"success",       "refused",   "exhausted",
                                                   "fault",         "suspected", "backpressure",
                                                   "misconfigured", "neutral"};
  return kNames.at(static_cast<std::size_t>(kind));
}

Outcome classify(const Attempt& attempt, const OverloadTimes& times) {
  switch (attempt.end) {
    case AttemptEnd::kComplete:
      return {.kind = OutcomeClass::kSuccess};
    case AttemptEnd::kRefused:
      return {.kind = OutcomeClass::kRefused, .is_retryable = true};
    case AttemptEnd::kExhausted:
      return {.kind = OutcomeClass::kExhausted, .is_retryable = true};
    case AttemptEnd::kBroken:
    case AttemptEnd::kAborted:
      return kFaultElsewhere;
    case AttemptEnd::kStatus:
      return classify_status(attempt, times);
    case AttemptEnd::kTooLong:
      return {.is_retryable = true};
    case AttemptEnd::kErrorFrame:
      return classify_error(attempt.error_code);
    case AttemptEnd::kStalled:
      if (!attempt.others_moved) return kFaultElsewhere;
      return {.is_retryable = true};
    case AttemptEnd::kNoFirstToken:
      return attempt.others_moved ? backpressure(std::nullopt, times) : kFaultElsewhere;
    case AttemptEnd::kDeadline:
      break;
  }
  return {};
}

OutcomeClass resolve_suspected(const Attempt& suspected, const Attempt& other) {
  if (other.end == AttemptEnd::kComplete) return OutcomeClass::kFault;
  const bool is_same = other.end == suspected.end && other.status == suspected.status &&
                       other.error_code == suspected.error_code;
  return is_same ? OutcomeClass::kNeutral : OutcomeClass::kSuspected;
}

}  // namespace fo::route
