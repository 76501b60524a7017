#include "engine_options.h"

#include "base/strong.h"
#include "base/text.h"
#include "os/file/file.h"

namespace fo::fo_canary {

http::Fields worker_headers(const Options& options) {
  http::Fields headers;
  if (options.worker_key_file.empty()) return headers;
  const std::string key = base::one_line(os::read_file(options.worker_key_file, base::kMiB));
  headers.emplace_back("authorization", "Bearer " + key);
  return headers;
}

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
