// One completion or chat of an oracle, from its request to the end of its answer or its fault.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "http/server.h"
#include "oracle/engine_state.h"

namespace fo::oracle {

/// Answers the request: returns the answer, or nullopt if it was streamed or the connection was
/// cut. Throws ApiError for a refusal. Counts the request as aborted if its client disconnects.
boost::asio::awaitable<std::optional<http::Response>> run_completion(
    std::shared_ptr<EngineState> state, Endpoint endpoint, const http::Request& request,
    http::Reply& reply);

}  // namespace fo::oracle
