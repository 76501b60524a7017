#include "weights/unpublish.h"

#include <fmt/format.h>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"
#include "gms/client/rpc_client.h"
#include "gms/protocol/types.h"

namespace fo::weights {

std::optional<UnpublishReport> unpublish(const std::string& socket_path,
                                         std::optional<base::Duration> timeout,
                                         std::optional<uid_t> server_uid) {
  const auto deadline = base::Deadline::after(timeout);
  const auto retry =
      timeout ? gms::RpcClient::Retry::kUntilTheDeadline : gms::RpcClient::Retry::kNever;
  const auto connect = [&](gms::RpcClient::Retry when_absent) {
    return gms::RpcClient::connect(socket_path, deadline, when_absent, server_uid);
  };
  const auto before = connect(retry).runtime_state();
  const std::string& hash = before.memory_layout_hash.value();
  if (!hash.empty() && !gms::is_layout_hash(hash)) {
    throw base::Error(
        base::ExitStatus::kProtocol,
        "GMS at " + base::quoted(socket_path) + ": invalid layout hash " + base::quoted(hash));
  }
  {
    auto rpc = connect(gms::RpcClient::Retry::kNever);
    if (!rpc.request_lock(gms::LockType::kRw, deadline).grant) return std::nullopt;
  }
  if (!before.committed && !before.layout_committed) return UnpublishReport{};
  return UnpublishReport{true, before.allocation_count, before.memory_layout_hash};
}

std::string format_text(const UnpublishReport& report) {
  if (!report.dropped) return "nothing was published";
  const std::string& hash = report.memory_layout_hash.value();
  return fmt::format("unpublished {}, layout {}",
                     base::counted(static_cast<std::uint64_t>(report.allocations), "allocation"),
                     hash.empty() ? "unknown" : hash);
}

std::string format_json(const UnpublishReport& report) {
  return fmt::format(R"({{"allocations": {}, "memory_layout_hash": "{}"}})", report.allocations,
                     report.memory_layout_hash.value());
}

}  // namespace fo::weights
