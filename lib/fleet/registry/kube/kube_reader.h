// The workers behind Services of Kubernetes, as records: its EndpointSlices, and ConfigMaps with
// cards. It never writes to Kubernetes.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"
#include "kube/config.h"

namespace fo::fleet {

struct KubeReaderConfig {
  /// Name of the registry in messages.
  std::string uri;
  kube::Config kube;
  std::string name_space;
  /// A label selector of EndpointSlices and ConfigMaps.
  std::string selector;
};

/// Calls also throw what kube::Client throws. A watch reports all workers as stale while the API
/// server is unreachable, and those that are missing in its next listing as gone.
std::unique_ptr<RecordReader> make_kube_reader(KubeReaderConfig config);

}  // namespace fo::fleet
