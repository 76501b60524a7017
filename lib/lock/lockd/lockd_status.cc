#include "lock/lockd/lockd_status.h"

#include "base/error.h"
#include "os/process/process.h"
#include "text/time_text.h"

namespace fo::lock {

using base::Deadline;
using base::Error;
using base::ExitStatus;

StatusAnswer status_in(std::string_view line, const std::string& what) {
  const LockdAnswer answer = decode_answer(line);
  if (const auto* refused = std::get_if<RefusedAnswer>(&answer)) {
    throw Error(refused->status, what + ": " + refused->reason);
  }
  const auto* reported = std::get_if<StatusAnswer>(&answer);
  if (reported == nullptr)
    throw Error(ExitStatus::kProtocol, what + ": not an answer to the request");
  return *reported;
}

LockStatus status_of(const std::string& path, const StatusAnswer& reported, bool visible) {
  LockStatus status;
  status.path = path;
  status.held = reported.holder.has_value();
  status.holder = reported.holder.value_or("");
  status.last_generation =
      reported.generation > 0 ? std::optional(reported.generation) : std::nullopt;
  status.window_left = reported.window_left;
  const auto own = [&](const std::optional<pid_t>& pid) { return visible ? pid.value_or(0) : 0; };
  for (const StatusAnswer::Waiter& waiter : reported.waiters) {
    status.waiters.push_back({own(waiter.pid), waiter.engine_id});
  }
  if (!status.held) return status;
  GrantRecord& record = status.record.emplace();
  record.holder = status.holder;
  record.generation = reported.generation;
  if (reported.granted_at) record.granted_at = text::format_time(*reported.granted_at);
  const auto add_holder = [&](pid_t pid) {
    if (pid == 0) return;
    status.open_by.push_back({pid, -1, command_of(pid), true});
    if (record.pid != 0) return;
    record.pid = pid;
    record.pid_ns = reported.pid_ns;
    record.start_time = os::process_start_time(pid).value_or(0);
    status.holder_state = holder_state(record, Deadline::after(base::Duration::zero()));
  };
  for (const StatusAnswer::Connection& connection : reported.connections) {
    add_holder(own(connection.pid));
  }
  for (const pid_t pid : reported.awaited_pids) add_holder(own(pid));
  return status;
}

}  // namespace fo::lock
