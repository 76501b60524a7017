// The state of a daemon in a file (--state), with which it begins after a restart.
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

/// Writes the text that `changed` returns each second, unless it is nullopt or the last text, until
/// it is cancelled. A failure is logged once, and the text is written when that is possible again.
boost::asio::awaitable<void> keep_state(
    std::string path, std::function<std::optional<std::string>()> changed,
    std::function<void()> on_failure = [] {});

}  // namespace fo::fleet
