// The paths of the PEM files for a TLS connection.
#pragma once

#include <compare>
#include <string>

namespace fo::net {

/// The files may be replaced at any time: they are read for the first connection after a change.
struct TlsFiles {
  /// Certificates of the authorities, one of which must have signed the peer's certificate.
  std::string ca;
  /// Our certificate, followed by its chain, and its key; both or neither.
  std::string certificate;
  std::string key;
  friend auto operator<=>(const TlsFiles&, const TlsFiles&) = default;
};

}  // namespace fo::net
