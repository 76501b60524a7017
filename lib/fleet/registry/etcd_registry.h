// A registry in etcd, for several machines. A process keeps its record by a lease, which it renews
// at a third of its time to live; other records have no lease.
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

/// Calls also throw what etcd::Client throws. A watch reports a process that was killed as stale
/// when its lease expires, because etcd does not tell that from a deletion.
std::unique_ptr<Registry> make_etcd_registry(EtcdRegistryConfig config);

}  // namespace fo::fleet
