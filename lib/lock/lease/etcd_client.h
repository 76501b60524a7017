// A failover lock in etcd (3.4 and later), through its JSON gateway: a lease that is kept alive,
// and a key with it; the oldest of the keys has the lock, the others watch the one in front of
// them. The generation is the key's create revision.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "lock/lease/lease_client.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"

namespace fo::lock {

inline constexpr base::Duration kDefaultEtcdTtl = std::chrono::seconds(10);

/// `uri` is of kind kEtcd. Beside what LeaseClient says, it throws kConfig, kNotPermitted and
/// kNoInput for credentials.
std::unique_ptr<LeaseClient> make_etcd_client(const LockUri& uri, const std::string& id);

/// Who has the lock and who waits, in the order of their turn. Throws kUnavailable, kNotPermitted,
/// kTryAgain when there is no answer until `deadline`, kProtocol.
LockStatus ask_etcd(const LockUri& uri, const base::Deadline& deadline);

}  // namespace fo::lock
