#include "weights/unpublish.h"

#include <fmt/format.h>

#include "base/deadline.h"
#include "gms/rpc_client.h"
#include "gms/types.h"

namespace fo::weights {

std::optional<UnpublishReport> unpublish(const std::string& socket_path,
                                         std::optional<base::Duration> timeout) {
  const auto deadline = base::Deadline::after(timeout);
  const auto retry =
      timeout ? gms::RpcClient::Retry::kUntilTheDeadline : gms::RpcClient::Retry::kNever;
  const auto before = gms::RpcClient::connect(socket_path, deadline, retry).runtime_state();
  {
    auto rpc = gms::RpcClient::connect(socket_path, deadline);
    if (!rpc.shake_hands(gms::LockType::kRw, deadline).grant) return std::nullopt;
  }
  if (before.memory_layout_hash.empty()) return UnpublishReport{};
  return UnpublishReport{before.allocation_count, before.memory_layout_hash};
}

std::string format_text(const UnpublishReport& report) {
  if (report.memory_layout_hash.empty()) return "nothing was published";
  return fmt::format("unpublished {} allocations, layout {}", report.allocations,
                     report.memory_layout_hash);
}

std::string format_json(const UnpublishReport& report) {
  return fmt::format(R"({{"allocations": {}, "memory_layout_hash": "{}"}})", report.allocations,
                     report.memory_layout_hash);
}

}  // namespace fo::weights
