#include "base/error.h"
#include "canary/daemon/metrics.h"
#include "cli/screen/output.h"
#include "commands.h"
#include "fleet/admin_socket.h"
#include "http/message.h"
#include "os/log.h"

namespace fo::fo_canary {

int state(const Options& options) {
  const std::string query = options.id.empty() ? "" : "?id=" + http::encode_parameter(options.id);
  const fleet::AdminAnswer answer = fleet::send_admin_request(
      "the canary", admin_path(options), "GET", "/state" + query, options.timeout);
  if (!answer.is_found) {
    os::log(os::LogLevel::kError, "{}", answer.text);
    return base::to_int(base::ExitStatus::kNo);
  }
  cli::print(options.common.json ? answer.text + "\n"
                                 : canary::state_table(answer.text, !options.id.empty()));
  return base::to_int(base::ExitStatus::kOk);
}

}  // namespace fo::fo_canary
