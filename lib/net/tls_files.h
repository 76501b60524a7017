// The paths of the PEM files for a TLS connection.
#pragma once

#include <string>

namespace fo::net {

/// The files may be replaced at any time: a client reads them for each connection, and a server
/// (ServerTls) for the first connection after a change.
struct TlsFiles {
  /// Certificates of the authorities, one of which must have signed the peer's certificate.
  std::string ca;
  /// Our certificate, followed by its chain, and its key; both or neither.
  std::string certificate;
  std::string key;
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

}  // namespace fo::net
