// Asks the worker that will continue an answer for the text of its tokens, before it continues.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "http/message.h"
#include "route/answer/outcome.h"
#include "route/resume/resumption.h"
#include "route/worker/worker.h"

namespace fo::route {

struct SeamCheck {
  /// Why the worker cannot continue the answer; empty if it can, and `resumption` stands at the
  /// place from which it does.
  std::string reason;
  /// The failed attempt, if the worker has given no text.
  std::optional<Attempt> failure = {};
};

/// Compares the text of the tokens with the one that was received, and goes back token by token to
/// a place where it fits. `headers` are sent with each query. Throws boost::system::system_error
/// when it is cancelled.
boost::asio::awaitable<SeamCheck> check_seam(WorkerPtr worker, http::Fields headers,
                                             Resumption& resumption, base::Deadline deadline);

}  // namespace fo::route
