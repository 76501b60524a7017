// Queries of an engine that do not run its model: a page of its API, and its load. The headers with
// the engines' key.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "fleet/engine_load.h"
#include "http/connection.h"

namespace fo::fleet {

/// The headers with the engines' API key, which is the text of `key_file`; none if that is empty.
/// Throws what os::read_file throws, and kBadData for a file without a key.
http::Fields key_headers(const std::string& key_file);

struct EnginePage {
  int status = 0;
  /// The body; only its beginning if `is_too_long`.
  std::string text;
  bool is_too_long = false;
};
/// Sends one GET, and reads the answer up to `max_bytes`. Throws what http::Connection throws.
boost::asio::awaitable<EnginePage> get_page(http::Connection& connection, std::string target,
                                            http::Fields headers, std::size_t max_bytes,
                                            base::Deadline deadline);

/// Queries BASE_PATH/metrics on a new connection; nullopt unless the status is 200 and the page has
/// at most 4 MiB. Throws what http::Connection throws, such as kTryAgain at the deadline.
boost::asio::awaitable<std::optional<EngineLoad>> query_engine_load(http::Origin origin,
                                                                    std::string base_path,
                                                                    http::Fields headers,
                                                                    base::Deadline deadline);

}  // namespace fo::fleet
