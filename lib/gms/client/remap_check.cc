#include "gms/client/remap_check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "base/units.h"
#include "gms/client/rpc_client.h"
#include "json/object.h"
#include "os/file/file.h"
#include "os/process/sibling.h"

namespace fo::gms {
namespace {

using base::Deadline;
using base::Error;
using base::ExitStatus;

struct ResultName {
  RemapResult result;
  std::string_view name;
  ExitStatus status;
};
constexpr std::array<ResultName, 4> kResults{{
    {RemapResult::kOk, "ok", ExitStatus::kOk},
    {RemapResult::kStaleLayout, "stale", ExitStatus::kBadData},
    {RemapResult::kTimedOut, "timed_out", ExitStatus::kTryAgain},
    {RemapResult::kConnectionFailed, "unavailable", ExitStatus::kUnavailable},
}};

const ResultName& name_of(RemapResult result) {
  return *std::find_if(kResults.begin(), kResults.end(),
                       [&](const ResultName& one) { return one.result == result; });
}

// The deadline of the lock: most of the time; the rest is for the server's answer and the queries
// after it.
Deadline lock_deadline(const Deadline& deadline) {
  constexpr base::Duration kMaxRest = std::chrono::milliseconds(500);
  const auto left = deadline.remaining();
  if (!left) return deadline;
  return Deadline::after(*left - std::min(*left / 10, kMaxRest));
}

RemapOutcome check_layout(const RemapCheckRequest& request, const Deadline& deadline,
                          RemapCheck& check) {
  const std::string what = "GMS at " + base::quoted(request.socket);
  RpcClient rpc =
      RpcClient::connect(request.socket, deadline, RpcClient::Retry::kNever, request.server_uid);
  if (!rpc.request_lock(LockType::kRo, lock_deadline(deadline)).grant) {
    return no_lock_in_time(what);
  }
  check.memory_layout_hash = rpc.layout_hash();
  if (!is_layout_hash(check.memory_layout_hash.value())) {
    throw Error(ExitStatus::kProtocol,
                what + ": its layout hash is " + base::quoted(check.memory_layout_hash.value()));
  }
  for (const Allocation& one : rpc.list_allocations()) {
    ++check.allocation_count;
    check.bytes += one.aligned_size;
  }
  return compare_layouts(what, check.memory_layout_hash, request.expect_hash);
}

// The last line of a helper's output, without the name and level at its start.
std::string last_words(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t line = text.rfind('\n');
  if (line != std::string_view::npos) text.remove_prefix(line + 1);
  constexpr std::string_view kStart = "fo-gpu: error: ";
  if (text.starts_with(kStart)) text.remove_prefix(kStart.size());
  return std::string(text);
}

RemapOutcome check_mapping(const RemapCheckRequest& request, const Deadline& deadline,
                           RemapCheck& check) {
  const base::Duration left = deadline.remaining().value_or(std::chrono::hours(1));
  std::vector<std::string> argv{os::find_sibling("fo-gpu"),
                                "map-check",
                                "--socket",
                                request.socket,
                                "--device",
                                std::to_string(request.device.value()),
                                "--timeout",
                                base::format_duration(left),
                                "--expect-hash",
                                check.memory_layout_hash.value()};
  if (request.server_uid) {
    argv.insert(argv.end(), {"--server-uid", std::to_string(*request.server_uid)});
  }
  if (!request.driver.empty()) argv.insert(argv.end(), {"--driver", request.driver});
  const std::optional<os::Captured> helper = os::run_captured(argv, deadline);
  if (!helper) {
    return {RemapResult::kTimedOut,
            "map the layout of the GMS at " + base::quoted(request.socket) + ": not done in time"};
  }
  if (helper->status == 0) {
    check.mapped = true;
    return {};
  }
  std::string reason = last_words(helper->err);
  if (reason.empty()) {
    reason = "map the layout of the GMS at " + base::quoted(request.socket) +
             ": fo-gpu ended with status " + std::to_string(helper->status);
  }
  if (const auto result = parse_exit_status(helper->status)) return {*result, reason};
  // A helper that died by a signal died while reading the memory.
  throw Error(
      helper->status < 128 ? static_cast<ExitStatus>(helper->status) : ExitStatus::kSoftware,
      reason);
}

}  // namespace

RemapCheck check_remap(const RemapCheckRequest& request, const Deadline& deadline) {
  const auto start = Deadline::Clock::now();
  RemapCheck check;
  check.socket = request.socket;
  try {
    check.outcome = check_layout(request, deadline, check);
    if (check.outcome.result == RemapResult::kOk && request.map) {
      check.outcome = check_mapping(request, deadline, check);
    }
  } catch (const Error& error) {
    check.outcome = outcome_of(error);
  }
  check.took = Deadline::Clock::now() - start;
  return check;
}

ExitStatus exit_status(RemapResult result) { return name_of(result).status; }

std::optional<RemapResult> parse_exit_status(int status) {
  for (const ResultName& one : kResults) {
    if (base::to_int(one.status) == status) return one.result;
  }
  return std::nullopt;
}

std::string to_json(const RemapCheck& check) {
  nlohmann::json out{{"socket", check.socket},
                     {"result", name_of(check.outcome.result).name},
                     {"memory_layout_hash", check.memory_layout_hash.value()},
                     {"allocation_count", check.allocation_count},
                     {"bytes", check.bytes},
                     {"mapped", check.mapped},
                     {"seconds", base::seconds_of(check.took)}};
  if (!check.outcome.reason.empty()) out["reason"] = check.outcome.reason;
  return json::dump(out);
}

std::string to_text(const RemapCheck& check) {
  return check.socket + ": could wake: " + base::counted(check.allocation_count, "allocation") +
         ", " + base::format_size(check.bytes) + (check.mapped ? ", mapped and read" : "") +
         ", layout " + check.memory_layout_hash.value();
}

std::vector<LayoutHash> read_hash_file(const std::string& path, std::size_t count) {
  const std::string text = os::read_file(path, base::kMiB);
  const auto refuse = [&](const std::string& reason) {
    throw Error(ExitStatus::kBadData, "read hash file " + base::quoted(path) + ": " + reason);
  };
  std::vector<LayoutHash> hashes;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!is_layout_hash(line)) refuse(base::quoted(line) + " is not a layout hash");
    hashes.emplace_back(std::string(line));
  }
  if (hashes.size() != count) {
    refuse(base::counted(hashes.size(), "hash") + " for " + base::counted(count, "socket"));
  }
  return hashes;
}

void write_hash_file(const std::string& path, const std::vector<LayoutHash>& hashes) {
  std::string text;
  for (const LayoutHash& hash : hashes) text += hash.value() + "\n";
  os::write_file_atomic(path, text);
}

}  // namespace fo::gms
