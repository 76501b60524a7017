// A failover lock that a gms-lockd on another machine keeps, over TCP: unlike the one beside its
// server (lockd_lock.h), it is a lease that heartbeats renew, for a machine that is lost says
// nothing.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "lock/lease/lease_client.h"
#include "lock/lock_status.h"
#include "lock/lock_uri.h"

namespace fo::lock {

/// `uri` is of kind kTcp. Without a ca it goes to loopback addresses only, else kUsage.
std::unique_ptr<LeaseClient> make_lockd_client(const LockUri& uri, const std::string& id);

/// As ask_lockd. Pids are not visible from here.
LockStatus ask_lockd_over_tcp(const LockUri& uri, const base::Deadline& deadline);

}  // namespace fo::lock
