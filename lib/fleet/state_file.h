// The file (--state) in which a daemon keeps its state over a restart.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <string>

#include "base/strong.h"

namespace fo::fleet {

/// Calls `load` with the text of the file, unless it is missing. An Error, also one of `load`, is
/// logged.
void load_state(const std::string& path, base::ByteCount max_bytes,
                const std::function<void(const std::string& text)>& load);

/// Calls `changed` each second until it is cancelled, and writes the text that it returns, unless
/// that is nullopt or the text written last. A failed write is repeated each second, with a call of
/// `on_failure`; only the first of several failures is logged.
boost::asio::awaitable<void> keep_state(
    std::string path, std::function<std::optional<std::string>()> changed,
    std::function<void()> on_failure = [] {});

}  // namespace fo::fleet
