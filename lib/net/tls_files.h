// The PEM files that a connection over TLS needs, by name.
#pragma once

#include <string>

namespace fo::net {

/// They may be replaced at any time: whoever uses them reads them again then.
struct TlsFiles {
  /// Of the authority (or several) that must have signed the peer's certificate.
  std::string ca;
  /// Ours, with what leads to its authority, and its key; both or neither.
  std::string certificate;
  std::string key;
  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;
};

}  // namespace fo::net
