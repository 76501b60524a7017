// A failover lock in etcd (3.4 and later), through its JSON gateway: a lease that is kept alive,
// and a key with it. The oldest key has the lock, and each other contender watches the key before
// its own. The generation is the key's create revision.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "lock/lease/lease_client.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"

namespace fo::lock {

inline constexpr base::Duration kDefaultEtcdTtl = std::chrono::seconds(10);

/// `uri` is of kind kEtcd. In addition to LeaseClient's errors, it throws kConfig, kNotPermitted
/// and kNoInput for credentials.
std::unique_ptr<LeaseClient> make_etcd_client(const LockUri& uri, const std::string& id);

/// The holder and the waiters, in the order of the queue. Throws kUnavailable, kNotPermitted,
/// kTryAgain when there is no answer until `deadline`, kProtocol.
LockStatus query_etcd(const LockUri& uri, const base::Deadline& deadline);

}  // namespace fo::lock
