#include "gms/client/remap_outcome.h"

#include "gms/client/rpc_client.h"

namespace fo::gms {

using base::Error;
using base::ExitStatus;

RemapOutcome no_lock_in_time(const std::string& what) {
  return {RemapResult::kTimedOut, what + ": Timeout waiting for lock ro"};
}

RemapOutcome compare_layouts(const std::string& what, const LayoutHash& found,
                             const LayoutHash& wanted) {
  if (wanted.empty() || found == wanted) return {};
  return {RemapResult::kStaleLayout,
          what + ": Layout changed: " + found.value() + " instead of " + wanted.value()};
}

RemapOutcome outcome_of(const Error& error) {
  // A refusal is not an outcome, whatever its status, because a server that keeps to the protocol
  // does not refuse a reader's requests.
  if (dynamic_cast<const RequestRefused*>(&error) != nullptr) {
    throw Error(ExitStatus::kProtocol, error.what());
  }
  if (error.status() == ExitStatus::kTryAgain) return {RemapResult::kTimedOut, error.what()};
  if (error.status() == ExitStatus::kUnavailable) {
    return {RemapResult::kConnectionFailed, error.what()};
  }
  throw;
}

}  // namespace fo::gms
