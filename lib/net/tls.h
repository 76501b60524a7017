// TLS contexts for this project's clients and servers. Each end presents the certificate that its
// files name, if any, and trusts one named authority file: a container with a single static program
// has no system store.
#pragma once

#include <array>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "net/tls_files.h"

namespace fo::net {

/// For a client, which needs `ca`. TLS 1.2 and later. expect_host() must follow for each stream.
/// Throws kUsage if `ca` is empty, or if only one of certificate and key is named; kNoInput for a
/// missing file, kNotPermitted, and kConfig for an unusable file, with its name.
boost::asio::ssl::context make_tls_client(const TlsFiles& files);

/// The same for files that may be replaced: this thread keeps the context, and reads the files
/// again only after one has changed (CachedTls). Hundreds of authorities take as long as many
/// requests. While the files are missing or invalid, for example half-written, the last valid ones
/// apply; the log says so once.
boost::asio::ssl::context tls_client(const TlsFiles& files);

/// For a server. With `ca`, it accepts only clients with a certificate of that authority. Throws
/// kUsage unless `certificate` and `key` are named, and the errors of make_tls_client for files.
boost::asio::ssl::context make_tls_server(const TlsFiles& files);

/// A context whose files may be replaced while the process runs. Files are read again only after
/// one has changed, invalid ones, too.
class CachedTls {
 public:
  /// make_tls_client or make_tls_server.
  using Make = boost::asio::ssl::context (*)(const TlsFiles&);
  /// What applies while files that have changed cannot be used.
  enum class Invalid { kRefuse, kKeepLast };
  CachedTls(TlsFiles files, Make make, Invalid invalid)
      : files_(std::move(files)), make_(make), invalid_(invalid) {}

  /// The context for one connection, which shares it with others. Throws what `make` throws, with
  /// kKeepLast only if the files could never be used.
  boost::asio::ssl::context context();

 private:
  // Makes the context of the present files.
  void read();
  // Identity and last change of a file.
  using Stamp = std::array<std::int64_t, 7>;
  using Stamps = std::array<Stamp, 3>;
  static Stamp stamp_of(const std::string& path);

  const TlsFiles files_;
  const Make make_;
  const Invalid invalid_;
  std::optional<boost::asio::ssl::context> context_;
  // True if the context is that of the present files.
  bool is_current_ = false;
  // The error of files that are invalid until one of them changes.
  std::optional<base::Error> refusal_;
  // True if the log says that the last valid files apply.
  bool is_logged_ = false;
  Stamps stamps_{};
};

/// The context of a server, which is cached because reading the files for each connection, before
/// the client is authenticated, would make floods expensive.
class ServerTls {
 public:
  explicit ServerTls(const TlsFiles& files)
      : is_used_(files != TlsFiles{}),
        cached_(files, make_tls_server, CachedTls::Invalid::kRefuse) {}

  /// The context for one connection; nullopt (no TLS) if no file is named. Throws what
  /// make_tls_server throws.
  std::optional<boost::asio::ssl::context> context() {
    return is_used_ ? std::optional(cached_.context()) : std::nullopt;
  }

 private:
  const bool is_used_;
  CachedTls cached_;
};

/// For a client's stream before its handshake: the server's certificate must have `host` (a name or
/// a numeric address) among its alternative names. Sends a name to the server (SNI), which may have
/// several certificates. Throws kUsage if `host` is empty, and kOsError.
void expect_host(SSL* ssl, const std::string& host);

/// The common name in the peer's certificate; nullopt if the peer sent no certificate, or one
/// without a common name.
std::optional<std::string> peer_common_name(SSL* ssl);

/// True if a handshake failed because the peer does not use TLS at all.
bool is_plain_text(const boost::system::error_code& error);

/// The Error for a failed operation on a TLS stream: kConfig for permanent failures (the peer's
/// certificate is untrusted, missing or for another host, or the peer refuses ours), kUnavailable
/// for transient ones (a certificate that is expired or not valid yet, an early end, an error of
/// the socket), otherwise kProtocol, for example if the peer does not use TLS. `ssl` is the native
/// handle of the stream.
base::Error tls_error(const std::string& what, const boost::system::error_code& error, SSL* ssl);

}  // namespace fo::net
