// Where Kubernetes' API server is, and with what to speak to it: as somebody says, or as a pod
// finds it. Kubeconfig files are not read.
#pragma once

#include <string>
#include <string_view>

#include "net/tls_files.h"

namespace fo::kube {

/// What a pod is given of its service account.
inline constexpr std::string_view kServiceAccountFolder =
    "/var/run/secrets/kubernetes.io/serviceaccount";

struct Config {
  /// "https://HOST:PORT".
  std::string server;
  net::TlsFiles tls;
  /// Empty: none is sent.
  std::string token_file;
};

/// `given`, and where that says nothing what KUBERNETES_SERVICE_HOST and _PORT and the files in
/// `folder` say. A token goes over TLS or to a loopback address only. Throws kConfig, "`what`:
/// reason", when there is no API server ("`absent`, and without KUBERNETES_SERVICE_HOST …"), or no
/// authority to trust, or the token must not go there.
Config find_config(Config given, const std::string& what, const std::string& absent,
                   std::string_view folder = kServiceAccountFolder);

/// The token in a file, which is replaced now and then: to be read for each request. Throws
/// kNoInput, kNotPermitted, and kConfig for what is no token.
std::string read_token(const std::string& path);

}  // namespace fo::kube
