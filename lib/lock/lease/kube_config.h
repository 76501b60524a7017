// Where Kubernetes' API server is, and with what to speak to it: as the lock's URI says, or as a
// pod finds it. Kubeconfig files are not read.
#pragma once

#include <string>
#include <string_view>

#include "lock/lock_uri.h"
#include "net/tls_files.h"

namespace fo::lock {

/// What a pod is given of its service account.
inline constexpr std::string_view kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

struct KubeConfig {
  /// "https://HOST:PORT".
  std::string server;
  net::TlsFiles tls;
  /// Empty: none is sent.
  std::string token_file;
};

/// From `uri`, and where it says nothing from KUBERNETES_SERVICE_HOST and _PORT and from the files
/// in `folder`. A token goes over TLS or to a loopback address only. Throws kConfig: there is no
/// API server, or no authority to trust, or the token must not go there.
KubeConfig find_kube_config(const LockUri& uri, std::string_view folder = kServiceAccountFolder);

/// The token in a file, which is replaced now and then: to be read for each request. Throws
/// kNoInput, kNotPermitted, and kConfig for what is no token.
std::string read_token(const std::string& path);

}  // namespace fo::lock
