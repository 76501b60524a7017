// The URIs of locks at a test's API server.
#pragma once

#include <string>

#include "kube/api_server.h"
#include "lock/lock_uri.h"

namespace fo::test {

/// The Lease of `name` in the namespace "ns".
inline lock::LockUri lock_in(const KubeApi& api, const std::string& duration = "2s",
                             const std::string& name = "pair") {
  return lock::parse_lock_uri("k8s:ns/" + name + "?duration=" + duration + "&api=" + api.url());
}

}  // namespace fo::test
