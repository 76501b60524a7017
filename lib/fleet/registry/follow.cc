#include "fleet/registry/follow.h"

#include "loop/pause.h"
#include "os/log_limit.h"

namespace fo::fleet {

boost::asio::awaitable<void> follow(RecordReader& registry, std::string prefix,
                                    std::function<void(const RegistryChange&)> on_change,
                                    loop::Backoff backoff) {
  os::LogLimit log_limit;
  const std::function<void(const RegistryChange&)> pass_on = [&](const RegistryChange& change) {
    if (change.kind == RegistryChange::Kind::kListed) backoff.reset();
    on_change(change);
  };
  for (;;) {
    try {
      co_await registry.watch(prefix, pass_on);
    } catch (const base::Error& error) {
      log_limit.log(os::LogLevel::kWarning, error.what(),
                    std::string("registry: ") + error.what() + "; trying again");
    }
    co_await loop::pause_for(backoff.next());
  }
}

}  // namespace fo::fleet
