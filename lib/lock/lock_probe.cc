#include "lock/lock_probe.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/object.h"
#include "json/probe_result.h"
#include "lock/lock_status.h"

namespace fo::lock {
namespace {

void ask_once(const LockProbe& probe, LockAnswer& answer) {
  answer.holder = find_owner(probe.lock, os::kProbeTime);
  const bool want_holder = probe.held || probe.holder;
  if (want_holder && !answer.holder) {
    answer.reason = "lock " + base::quoted(probe.lock.path) + ": not held";
  } else if (probe.holder && answer.holder != probe.holder) {
    answer.reason =
        "lock " + base::quoted(probe.lock.path) + ": held by " + base::quoted(*answer.holder);
  } else {
    answer.yes = true;
  }
}

}  // namespace

LockAnswer probe_lock(const LockProbe& probe) { return os::ask_until_yes(probe, ask_once); }

std::string to_json(const LockAnswer& answer) {
  return fo::json::probe_result(answer.yes, answer.reason,
                                {{"holder", fo::json::or_null(answer.holder)}});
}

}  // namespace fo::lock
