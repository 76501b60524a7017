// TLS for clients and servers of this project: both sides always show who they are to the extent
// that files say so, and trust one authority, which is named: there is no system's store in a
// container with one static program.
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

/// For a client, which needs `ca`: the server's certificate must name `host` (a name or a numeric
/// address) among its alternative names. TLS 1.2 and later. Throws kUsage when no file is named,
/// kNoInput for a file that is not there, kNotPermitted, and kConfig for one that can't be used,
/// naming it.
boost::asio::ssl::context make_tls_client(const TlsFiles& files, const std::string& host);

/// For a server, which needs `certificate` and `key`; with `ca` it takes only clients that have a
/// certificate of that authority. Throws as make_tls_client.
boost::asio::ssl::context make_tls_server(const TlsFiles& files);

/// The context of a server whose files may be replaced while it runs, made anew when one of them
/// has changed: to read them for each connection, before anybody has shown who he is, would be work
/// for a flood.
class ServerTls {
 public:
  explicit ServerTls(TlsFiles files) : files_(std::move(files)) {}

  /// For one connection; nullopt, in the clear, where no file is named. Throws make_tls_server's
  /// errors.
  std::optional<boost::asio::ssl::context> context();

 private:
  // Which file it is, and as which it was written last.
  using Stamp = std::array<std::int64_t, 7>;
  using Stamps = std::array<Stamp, 3>;
  static Stamp stamp_of(const std::string& path);

  const TlsFiles files_;
  std::optional<boost::asio::ssl::context> context_;
  Stamps stamps_{};
};

/// For a client's stream, before its handshake: names `host` to a server that has certificates for
/// several (SNI), unless it is numeric. Throws kOsError.
void name_server(SSL* ssl, const std::string& host);

/// What `error` of an operation on a stream over TLS means: kConfig for what is wrong for good (the
/// peer's certificate is not trusted, not there or names another host, or it refuses ours),
/// kUnavailable for what may pass (a certificate whose time is over or has not come, an early end),
/// kProtocol where no TLS is spoken. `ssl` is the stream's native handle.
base::Error tls_error(const std::string& what, const boost::system::error_code& error, SSL* ssl);

}  // namespace fo::net
