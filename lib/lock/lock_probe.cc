#include "lock/lock_probe.h"

#include <poll.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/deadline.h"
#include "base/error.h"
#include "lock/lock_status.h"

namespace fo::lock {
namespace {

using base::Deadline;
using base::ExitStatus;

constexpr base::Duration kAnswerTime = std::chrono::seconds(1);
constexpr base::Duration kInterval = std::chrono::milliseconds(50);

LockAnswer ask_once(const LockProbe& probe) {
  LockAnswer answer;
  try {
    answer.holder = find_owner(probe.lock, kAnswerTime);
  } catch (const base::Error& error) {
    const ExitStatus status = error.status();
    if (status != ExitStatus::kUnavailable && status != ExitStatus::kTryAgain &&
        status != ExitStatus::kProtocol) {
      throw;
    }
    answer.reason = error.what();
    return answer;
  }
  const bool want_holder = probe.held || probe.holder;
  if (want_holder && !answer.holder) {
    answer.reason = "lock " + base::quoted(probe.lock.path) + ": nobody holds it";
  } else if (probe.holder && answer.holder != probe.holder) {
    answer.reason =
        "lock " + base::quoted(probe.lock.path) + ": held by " + base::quoted(*answer.holder);
  } else {
    answer.yes = true;
  }
  return answer;
}

}  // namespace

LockAnswer probe_lock(const LockProbe& probe) {
  const Deadline deadline = Deadline::after(probe.wait);
  for (;;) {
    LockAnswer answer = ask_once(probe);
    if (answer.yes || deadline.expired()) return answer;
    ::poll(nullptr, 0, Deadline::after(kInterval).sooner(deadline).poll_timeout());
  }
}

std::string to_json(const LockAnswer& answer) {
  nlohmann::json out{{"result", answer.yes ? "yes" : "no"}, {"holder", nullptr}};
  if (answer.holder) out["holder"] = *answer.holder;
  if (!answer.yes) out["reason"] = answer.reason;
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace fo::lock
