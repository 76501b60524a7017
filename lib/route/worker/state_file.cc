#include "route/worker/state_file.h"

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/error.h"
#include "loop/blocking.h"
#include "loop/pause.h"
#include "os/file.h"
#include "os/log.h"
#include "os/log_limit.h"

namespace fo::route {
namespace {

using base::Error;
using boost::asio::awaitable;

constexpr base::Duration kSaveInterval = std::chrono::seconds(1);

}  // namespace

void load_state(RegistrySource& source, const std::string& path) {
  try {
    source.load(os::read_file(path, RegistrySource::kMaxSavedBytes));
  } catch (const Error& error) {
    if (error.status() == base::ExitStatus::kNoInput) return;
    os::log(os::LogLevel::kWarning, "state file {}: {}", base::quoted(path), error.what());
  }
}

awaitable<void> save_state(const RegistrySource& source, std::string path) {
  std::uint64_t saved = source.changes();
  os::LogLimit log_limit;
  for (;;) {
    co_await loop::pause_for(kSaveInterval);
    if (!source.is_listed() || source.changes() == saved) continue;
    const std::uint64_t changes = source.changes();
    try {
      const std::function<bool()> write = [&path, text = source.save()] {
        os::write_file_atomic(path, text, 0600);
        return true;
      };
      co_await loop::run_blocking(write);
      saved = changes;
    } catch (const Error& error) {
      log_limit.log(os::LogLevel::kWarning, error.what(), error.what());
    }
  }
}

}  // namespace fo::route
