// Runs one completion: it waits for its turn of the model, and answers whole or as a stream.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "http/server.h"
#include "refengine/api/api.h"
#include "refengine/api/completion_request.h"

namespace fo::refengine {

/// Throws ApiError for a request that is invalid, or that the engine does not admit now.
boost::asio::awaitable<void> run_completion(const ApiContext& context, Endpoint endpoint,
                                            const http::Request& request, http::Reply& reply);

}  // namespace fo::refengine
