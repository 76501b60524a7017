// Opens the registry that a URI names.
#pragma once

#include <memory>
#include <string>

#include "fleet/registry/registry.h"

namespace fo::fleet {

inline constexpr char kDefaultRegistry[] = "dir:/run/fo/registry";

/// One of
///   dir:PATH
///   etcd:http[s]://HOST:PORT,.../PREFIX, with the parameters of an etcd lock
///   k8s:NAMESPACE/SELECTOR, with the parameters of a lock in Kubernetes except its duration
///   static:URL,...
/// The last two have read-only workers, k8s also their cards; all other records are in the registry
/// `state`, which is one of the first two. Throws kUsage for another URI: "registry 'text':
/// reason", and kConfig if the API server of k8s: is not configured.
std::unique_ptr<Registry> make_registry(const std::string& uri,
                                        const std::string& state = kDefaultRegistry);

/// Credentials for etcd; each is empty if it is not given.
struct EtcdParameters {
  std::string ca;
  std::string certificate;
  std::string key;
  std::string user;
  std::string password_file;
};
/// `uri` with these parameters added if it names an etcd; any other URI unchanged.
std::string with_parameters(std::string uri, const EtcdParameters& parameters);

}  // namespace fo::fleet
