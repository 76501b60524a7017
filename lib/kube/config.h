// The address of Kubernetes' API server, and the credentials for it: as configured, or as found in
// a pod. Kubeconfig files are not read.
#pragma once

#include <string>
#include <string_view>

#include "net/tls_files.h"

namespace fo::kube {

/// The folder with a pod's service account files.
inline constexpr std::string_view kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

struct Config {
  /// "https://HOST:PORT".
  std::string server;
  net::TlsFiles tls;
  /// Empty: no token is sent.
  std::string token_file;
};

/// Completes `given` from KUBERNETES_SERVICE_HOST and _PORT and the files in `folder`. A token is
/// used only with TLS or for a loopback address. Throws kConfig, "`what`: reason", if there is no
/// API server ("`absent`, and without KUBERNETES_SERVICE_HOST …"), no authority to trust, or a
/// token for an address that must not receive it.
Config find_config(Config given, const std::string& what, const std::string& absent,
                   std::string_view folder = kServiceAccountFolder);

/// Reads the token in a file. Call it for each request, because the file is replaced periodically.
/// Throws kNoInput, kNotPermitted, and kConfig for an invalid token.
std::string read_token(const std::string& path);

}  // namespace fo::kube
