// The acquittal of a worker by an operator. The record of the conviction becomes a verdict that has
// expired and names the conviction, so that the canary that convicted the worker finds it, even if
// that canary starts later.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "fleet/registry/registry.h"
#include "fleet/verdict.h"

namespace fo::canary {

/// The text of the record that acquits a worker of this conviction.
std::string acquitted(const fleet::Verdict& conviction, text::WallTime now);

/// The "since" of the conviction that a record lifts; nullopt if the text is not an acquittal.
std::optional<text::WallTime> acquits_since(std::string_view text);

/// Acquits the worker of the convictions of all canaries; returns their number. Records that are
/// invalid are left out, with a warning in the log. Throws what Registry::list and edit throw.
boost::asio::awaitable<std::size_t> acquit(fleet::Registry& registry, std::string worker_id,
                                           base::Deadline deadline);

}  // namespace fo::canary
