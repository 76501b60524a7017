// Collections of the namespace "ns".
#pragma once

#include "kube/api.h"
#include "kube/lease.h"

namespace fo::kube {

inline const Collection kLeases = leases_in("ns");
inline const Collection kConfigMaps{{"", "v1", "configmaps", "ConfigMap"}, "ns"};

}  // namespace fo::kube
