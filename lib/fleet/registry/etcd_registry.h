// A registry in etcd, for several machines. A process keeps its record with a lease, which it
// renews after each third of the time to live. Other records have no lease.
#pragma once

#include <memory>
#include <string>

#include "base/units.h"
#include "etcd/client.h"
#include "fleet/registry/registry.h"

namespace fo::fleet {

inline constexpr base::Duration kDefaultRegistryTtl = std::chrono::seconds(10);

struct EtcdRegistryConfig {
  /// Name of the registry in messages.
  std::string uri;
  etcd::Config etcd;
  /// All keys are below "PREFIX/".
  std::string prefix;
  /// Time to live of the leases.
  base::Duration ttl = kDefaultRegistryTtl;
};

/// Calls also throw what etcd::Client throws. A watch reports the record of a killed process as
/// kStale when its lease expires, because etcd reports an expiry as a deletion, and all workers as
/// kStale while etcd is unreachable.
std::unique_ptr<Registry> make_etcd_registry(EtcdRegistryConfig config);

}  // namespace fo::fleet
