// TLS connections of lines: the host they name.
#include "net/line_stream.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <string>

#include "net/tls.h"
#include "net/tls_server.h"
#include "support/authority.h"

namespace fo::net {
namespace {

using base::Deadline;
using fo::test::Authority;
using test::TlsServer;

boost::asio::awaitable<LineStream::Input::Kind> connect_and_read(std::string server,
                                                                 TlsFiles files) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  const auto stream = co_await LineStream::connect(server, files, 100, deadline);
  std::string line = "hello\r\n\r\n";
  co_await stream->write(std::move(line), deadline);
  const LineStream::Input input = co_await stream->read_line(deadline);
  co_return input.kind;
}

/// The host that a client of `host` names in its handshake.
std::string host_named_to(const std::string& host) {
  Authority authority;
  TlsFiles files = authority.issue("DNS:localhost,IP:127.0.0.1");
  files.ca.clear();
  boost::asio::io_context loop{1};
  const TlsServer server(loop.get_executor(), make_tls_server(files), TlsServer::Behaviour());
  boost::asio::co_spawn(
      loop, connect_and_read(host + ":" + std::to_string(server.port()), {authority.ca(), "", ""}),
      [&](const std::exception_ptr& error, LineStream::Input::Kind) {
        loop.stop();
        if (error) std::rethrow_exception(error);
      });
  loop.run();
  return server.host();
}

TEST(LineStreamTls, NamesTheHostInTheHandshake) {
  EXPECT_EQ(host_named_to("localhost"), "localhost");
  EXPECT_EQ(host_named_to("127.0.0.1"), "");
}

}  // namespace
}  // namespace fo::net
