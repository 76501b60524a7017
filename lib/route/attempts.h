// Runs one admitted request to the end of its answer: gives it to a worker and, if that fails, to
// another one, from the beginning or, once a part of the answer was delivered, from there on.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "http/server.h"
#include "route/queue/job.h"
#include "route/router_parts.h"

namespace fo::route {

/// Afterwards, the status of the client's answer is in `job.status`. Throws what Reply throws, for
/// example if the client disconnects.
boost::asio::awaitable<void> answer(RouterParts& parts, Job& job, http::Reply& reply);

}  // namespace fo::route
