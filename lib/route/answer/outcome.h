// Classifies the end of one attempt of a request on a worker: what it says of the worker, and
// whether another worker may succeed. Pure.
//
//     attempt                                           class
//     complete answer                                   success
//     connection refused                                refused
//     no descriptor or memory for a connection          exhausted
//     connection broken: reset, TLS, HTTP, truncated    fault
//     finish_reason "abort" or "error"                  fault
//     status 502, 504                                   fault
//     status 5xx, error frame in a stream: by the code  neutral for a code of 4xx, else suspected
//       in the error
//     status 429, 503, 529                              backpressure
//     status 401, 403; 404 unless that may mean         misconfigured
//       something else than the model
//     status 400, 422 for a continuation                neutral, worth another worker
//     any other status                                  neutral
//     stalled, and so are the worker's other streams    fault
//     stalled, while other streams of the worker move   neutral
//     no first token, nor one of the other streams      fault
//     no first token, while other streams move          backpressure
//     client disconnected, the request's deadline       neutral
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "route/answer/exchange.h"

namespace fo::route {

enum class AttemptEnd {
  kComplete,
  kRefused,    // nothing listens at the worker's address
  kExhausted,  // this process has no descriptor or memory for a connection
  kBroken,     // the connection could not be made, or ended before the answer did
  kAborted,    // the engine ended the answer with "abort" or "error"
  kStatus,
  kErrorFrame,
  kTooLong,       // for the router to read it as a stream
  kStalled,       // no token for CallTimes::stall_limit(), or for the limit of one silent stream
  kNoFirstToken,  // no token in CallTimes::first_token_limit()
  kDeadline,      // that of the request, which covers all its attempts
};

/// Returns the end of an attempt for a fault that the exchange found in an answer.
AttemptEnd end_of(AnswerFault::Kind kind);

struct Attempt {
  AttemptEnd end = AttemptEnd::kComplete;
  /// For kStatus: the status.
  int status = 0;
  /// The code that the error itself contains, of kStatus and kErrorFrame; 0 if there is none.
  int error_code = 0;
  /// For kStatus: 404 may mean that the worker does not have the API, or the earlier answer, that
  /// the client asks for.
  bool may_lack_object = false;
  /// For kStatus: the worker gets the key of the client, so that 401 and 403 are answers to that.
  bool gets_client_key = false;
  /// For kStatus: 400 and 422 may mean that the worker does not know the fields of a continuation.
  bool may_lack_fields = false;
  /// For kStatus: the time in its Retry-After.
  std::optional<base::Duration> retry_after = {};
  /// For kStalled and kNoFirstToken: true if other streams of the worker have brought tokens
  /// meanwhile.
  bool others_moved = false;
};

enum class OutcomeClass {
  kSuccess,
  kRefused,        // the worker is out until it accepts a connection: a standby may take over
  kExhausted,      // the router lacks descriptors or memory: says nothing of the worker
  kFault,          // an event of the worker's health
  kSuspected,      // worker or request: see resolve_suspected()
  kBackpressure,   // the worker has no room at present
  kMisconfigured,  // the worker does not serve this model to us
  kNeutral,        // says nothing of the worker
};

std::string_view to_string(OutcomeClass kind);

struct Outcome {
  OutcomeClass kind = OutcomeClass::kNeutral;
  /// The request may succeed on another worker.
  bool is_retryable = false;
  /// For kBackpressure: the time for which the worker's slot limit does not grow.
  base::Duration pause{0};
  /// For kBackpressure: true if the status was 503. A worker that answers nothing else is out after
  /// a while (Unavailability).
  bool is_unavailable = false;
};

struct OverloadTimes {
  /// The pause of a worker that reports overload without a Retry-After, and the longest one.
  base::Duration pause = std::chrono::seconds(1);
  base::Duration max_pause = std::chrono::seconds(30);
  /// A worker that answers 503 alone for so long is out (Unavailability).
  base::Duration unavailable = std::chrono::seconds(10);
};

/// Classifies an attempt by the table above.
Outcome classify(const Attempt& attempt, const OverloadTimes& times = {});

/// Returns the class of a suspected attempt after `other`, an attempt of the same request on
/// another worker: kFault if `other` succeeded; kNeutral if both failed in the same way, which
/// makes `other` neutral, too; otherwise kSuspected, which counts as neutral at the end of the
/// request.
OutcomeClass resolve_suspected(const Attempt& suspected, const Attempt& other);

}  // namespace fo::route
