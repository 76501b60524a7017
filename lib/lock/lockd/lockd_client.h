// A failover lock of a gms-lockd on another machine, over TCP. Unlike the local one (lockd_lock.h)
// it is a lease that heartbeats renew, because a lost machine cannot report its end.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "lock/lease/lease_client.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// `uri` must be of kind kTcp. Without a ca, acquire() throws kUsage unless the server's address is
/// a loopback address.
std::unique_ptr<LeaseClient> make_lockd_client(const LockUri& uri, const std::string& id);

/// Like query_lockd. Pids are not visible from here.
LockStatus query_lockd_over_tcp(const LockUri& uri, const base::Deadline& deadline);

}  // namespace fo::lock
