#include "engine_options.h"

namespace fo::fo_canary {

std::optional<net::TlsFiles> worker_tls(const Options& options) {
  if (options.worker_ca.empty()) return std::nullopt;
  net::TlsFiles files;
  files.ca = options.worker_ca;
  return files;
}

canary::CheckerOptions checker_options(const Options& options) {
  canary::CheckerOptions checker;
  checker.rules = options.rules;
  checker.retries = static_cast<unsigned>(options.retries);
  checker.hung_after = options.hung_after;
  return checker;
}

}  // namespace fo::fo_canary
