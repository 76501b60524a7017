#include "fleet/state_file.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/file/file.h"
#include "os/log.h"

namespace fo::fleet {
namespace {

constexpr base::Duration kSaveInterval = std::chrono::seconds(1);

}  // namespace

void load_state(const std::string& path, base::ByteCount max_bytes,
                const std::function<void(const std::string& text)>& load) {
  try {
    load(os::read_file(path, max_bytes));
  } catch (const base::Error& error) {
    if (error.status() == base::ExitStatus::kNoInput) return;
    os::log(os::LogLevel::kWarning, "state file {}: {}; starting without it", base::quoted(path),
            error.what());
  }
}

boost::asio::awaitable<void> keep_state(std::string path,
                                        std::function<std::optional<std::string>()> changed,
                                        std::function<void()> on_failure) {
  std::string written;
  std::optional<std::string> text;
  bool has_failed = false;
  for (;;) {
    co_await loop::pause_for(kSaveInterval);
    if (std::optional<std::string> next = changed()) text = std::move(next);
    if (!text || *text == written) continue;
    try {
      const std::function<bool()> write = [&path, &text] {
        os::write_file_atomic(path, *text, 0600);
        return true;
      };
      co_await loop::run_blocking(write);
      written = *std::exchange(text, std::nullopt);
      if (std::exchange(has_failed, false)) {
        os::log(os::LogLevel::kInfo, "state file {}: is written again", base::quoted(path));
      }
    } catch (const base::Error& error) {
      on_failure();
      if (!std::exchange(has_failed, true)) os::log(os::LogLevel::kWarning, "{}", error.what());
    }
  }
}

}  // namespace fo::fleet
