#include "route/router_parts.h"

#include "base/error.h"
#include "os/log.h"

namespace fo::route {

http::Fields RouterParts::worker_headers(const Job& job, Worker& worker) const {
  http::Fields headers = options.worker_headers;
  headers.emplace_back("x-request-id", job.id);
  for (const auto& field : job.request.headers) {
    if (field.first != kAuthorization) continue;
    if (worker.is_private()) {
      headers.push_back(field);
    } else if (!std::exchange(worker.warned_unencrypted, true)) {
      // Others in the network could read the client's key.
      os::log(
          os::LogLevel::kWarning,
          "worker {}: Authorization of clients is not forwarded: its URL is neither https nor a "
          "loopback address",
          base::quoted(worker.name));
    }
  }
  return headers;
}

}  // namespace fo::route
