// Queries the worker that will continue an answer for the text of the answer's tokens, and compares
// it with the text that was received, before the worker continues.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "http/message.h"
#include "route/answer/outcome.h"
#include "route/resume/resumption.h"
#include "route/worker/worker.h"

namespace fo::route {

struct SeamCheck {
  /// Why the worker cannot continue the answer; empty if it can. Then `resumption` is rewound to
  /// the place from which the worker continues.
  std::string reason;
  /// The failed attempt, if the worker has given no text.
  std::optional<Attempt> failure = {};
};

/// Compares the text of the tokens with the one that was received, and goes back token by token to
/// a place up to which both are the same. `headers` are sent with each query. `deadline` is that of
/// the request; a worker computes the text at once, unless it hangs, so that all queries together
/// have `timeout`. Throws boost::system::system_error when it is cancelled.
boost::asio::awaitable<SeamCheck> check_seam(WorkerPtr worker, http::Fields headers,
                                             Resumption& resumption, base::Deadline deadline,
                                             base::Duration timeout = std::chrono::seconds(5));

}  // namespace fo::route
