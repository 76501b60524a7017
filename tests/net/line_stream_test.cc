// TLS connections of lines: the host they name, and the certificates they trust.
#include "net/line_stream.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "net/tls.h"
#include "net/tls_server.h"
#include "support/authority.h"

namespace fo::net {
namespace {

using base::Deadline;
using base::ExitStatus;
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

class LineStreamTls : public testing::Test {
 protected:
  /// The error of a client with these files that connects to `server` by the name `host`.
  std::optional<ExitStatus> failure(const TlsServer& server, const std::string& host,
                                    const TlsFiles& files) {
    std::optional<ExitStatus> status;
    boost::asio::co_spawn(loop_,
                          connect_and_read(host + ":" + std::to_string(server.port()), files),
                          [&](const std::exception_ptr& error, LineStream::Input::Kind) {
                            loop_.stop();
                            try {
                              if (error) std::rethrow_exception(error);
                            } catch (const base::Error& caught) {
                              status = caught.status();
                            }
                          });
    loop_.restart();
    loop_.run();
    return status;
  }
  /// The error of a client without a certificate at a server that requires none.
  std::optional<ExitStatus> failure(TlsFiles files, const std::string& host) {
    files.ca.clear();
    const TlsServer& server = serve(files);
    const auto status = failure(server, host, {authority_.ca(), "", ""});
    named_ = server.host();
    return status;
  }

  const TlsServer& serve(const TlsFiles& files) {
    servers_.push_back(std::make_unique<TlsServer>(loop_.get_executor(), make_tls_server(files),
                                                   TlsServer::Behaviour()));
    return *servers_.back();
  }

  boost::asio::io_context loop_{1};
  // Each may still be in a handshake when the next client connects.
  std::vector<std::unique_ptr<TlsServer>> servers_;
  Authority authority_;
  /// The host that the client named in its handshake.
  std::string named_;
};

TEST_F(LineStreamTls, NamesTheHostInTheHandshake) {
  const TlsFiles files = authority_.issue("DNS:localhost,IP:127.0.0.1");
  EXPECT_EQ(failure(files, "localhost"), std::nullopt);
  EXPECT_EQ(named_, "localhost");
  EXPECT_EQ(failure(files, "127.0.0.1"), std::nullopt);
  EXPECT_EQ(named_, "");
}

TEST_F(LineStreamTls, WhoIsNotTrustedIsForGood) {
  Authority other;
  EXPECT_EQ(failure(other.issue("DNS:localhost"), "localhost"), ExitStatus::kConfig);
  EXPECT_EQ(failure(authority_.issue("DNS:other.test"), "localhost"), ExitStatus::kConfig);
  EXPECT_EQ(failure(authority_.issue("IP:127.0.0.2"), "127.0.0.1"), ExitStatus::kConfig);
}

TEST_F(LineStreamTls, WhatIsOutOfDateMayPass) {
  EXPECT_EQ(failure(authority_.issue("DNS:localhost", -1), "localhost"), ExitStatus::kUnavailable);
  const TlsServer& server = serve(authority_.issue("DNS:localhost"));
  EXPECT_EQ(failure(server, "localhost", authority_.issue("DNS:client", -1)),
            ExitStatus::kUnavailable);
}

TEST_F(LineStreamTls, ToBeRefusedIsForGood) {
  const TlsServer& server = serve(authority_.issue("DNS:localhost"));
  EXPECT_EQ(failure(server, "localhost", {authority_.ca(), "", ""}), ExitStatus::kConfig);
  Authority other;
  TlsFiles files = other.issue("DNS:client");
  files.ca = authority_.ca();
  EXPECT_EQ(failure(server, "localhost", files), ExitStatus::kConfig);
}

}  // namespace
}  // namespace fo::net
