// A failover lock in Kubernetes: a Lease of coordination.k8s.io/v1. The first update of a resource
// version acquires or renews it. Waiters watch it: a Lease that did not change for its own duration
// is free. The generation is leaseTransitions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "kube/config.h"
#include "lock/lease/lease_client.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"

namespace fo::lock {

inline constexpr base::Duration kDefaultLeaseDuration = std::chrono::seconds(15);

/// The API server of a lock: from `uri`, or as a pod finds it. Throws kConfig.
kube::Config find_kube_config(const LockUri& uri,
                              std::string_view folder = kube::kServiceAccountFolder);

/// `uri` is of kind kKube. Throws kConfig if it names no API server and this is not a pod. In
/// addition to LeaseClient's errors, it throws kConfig, kNotPermitted and kNoInput for credentials
/// before the server was reached, and kNoInput for a missing namespace. If the Lease is deleted
/// while acquire() waits for it, acquire() creates it again after the holder's lease duration.
std::unique_ptr<LeaseClient> make_kube_client(const LockUri& uri, const std::string& id);

/// The holder of the lock. A Lease that expired more than a minute ago by this machine's wall clock
/// is free; before that, the holder may have another clock. Waiters are not visible. Throws
/// kUnavailable, kNotPermitted, kTryAgain when there is no answer until `deadline`, kProtocol, and
/// what make_kube_client throws.
LockStatus query_kube(const LockUri& uri, const base::Deadline& deadline);

}  // namespace fo::lock
