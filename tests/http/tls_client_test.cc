// The client with TLS and with host names, and failures in the middle of both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "http/client.h"
#include "loop/spawn.h"
#include "net/dns_server.h"
#include "net/tls.h"
#include "net/tls_server.h"
#include "os/file/file.h"
#include "os/socket/unix_socket.h"
#include "support/authority.h"
#include "support/fds.h"
#include "support/inherited_fds.h"
#include "support/soon.h"

namespace fo::http::test {
namespace {

using base::Deadline;
using base::ExitStatus;
using boost::asio::ip::tcp;
using fo::test::soon;
using net::test::dns_answer;
using net::test::DnsQuestion;
using net::test::DnsServer;
using net::test::TlsServer;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;
using Stop = TlsServer::Stop;

class TlsClient : public fo::test::FdCounting {
 protected:
  struct Outcome {
    std::optional<Response> response;
    std::optional<ExitStatus> status;
    std::string reason;
  };

  TlsClient() {
    options_.tls = net::TlsFiles{authority_.ca(), "", ""};
    // The server requires no client certificate.
    files_.ca.clear();
  }

  Outcome run(const std::string& url, const Deadline& deadline = soon()) {
    outcome_ = {};
    loop_.restart();
    std::optional<Response> response;
    loop::spawn(
        loop_, loop::store(async_fetch(method_, url, deadline, options_), response),
        [&](const std::exception_ptr& error) {
          take(error, std::move(response).value_or(Response{}));
          loop_.stop();
        },
        cancel_.slot());
    loop_.run();
    return outcome_;
  }
  /// Queries a server with this certificate by the name (or numeric address) `host`.
  Outcome ask(net::TlsFiles files, const std::string& host) {
    files.ca.clear();
    const TlsServer server(loop_.get_executor(), net::make_tls_server(files), {});
    return run(server.url(host));
  }
  void cancel() {
    boost::asio::post(loop_, [this] { cancel_.emit(boost::asio::cancellation_type::terminal); });
  }
  /// Expects that cancel() ends the fetch.
  void expect_cancelled(const std::string& url) {
    const Outcome outcome = run(url, Deadline::never());
    EXPECT_EQ(outcome.status, std::nullopt) << outcome.reason;
    EXPECT_THAT(outcome.reason, HasSubstr("canceled"));
  }

  boost::asio::io_context loop_{1};
  fo::test::Authority authority_;
  net::TlsFiles files_ = authority_.issue("DNS:localhost,DNS:etcd.test,IP:127.0.0.1");
  boost::asio::cancellation_signal cancel_;
  std::string method_ = "GET";
  FetchOptions options_;

 private:
  void take(const std::exception_ptr& error, Response response) {
    if (!error) {
      outcome_.response = std::move(response);
      return;
    }
    try {
      std::rethrow_exception(error);
    } catch (const base::Error& failure) {
      outcome_.status = failure.status();
      outcome_.reason = failure.what();
    } catch (const std::exception& failure) {
      outcome_.reason = failure.what();
    }
  }

  Outcome outcome_;
};

TEST_F(TlsClient, AsksAServerThatTheAuthoritySigned) {
  const Outcome outcome = ask(files_, "127.0.0.1");
  ASSERT_TRUE(outcome.response) << outcome.reason;
  EXPECT_EQ(outcome.response->status, 200);
  EXPECT_EQ(outcome.response->body, "hi");
}

TEST_F(TlsClient, BlocksToo) {
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {});
  auto answer = std::async(std::launch::async, [this, url = server.url()] {
    Response response = fetch("GET", url, soon(), options_);
    loop_.stop();
    return response;
  });
  loop_.run_for(std::chrono::seconds(30));
  EXPECT_EQ(answer.get().body, "hi");
}

TEST_F(TlsClient, SaysWhichHostItWantsInHandshakeAndRequest) {
  const DnsServer names(loop_.get_executor(), [](const DnsQuestion& question) {
    const std::vector<std::string> address{"\x7f\0\0\1"s};
    return dns_answer(question, question.is_ipv6 ? std::vector<std::string>{} : address);
  });
  options_.name_servers = names.address();
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {});
  const Outcome outcome = run(server.url("etcd.test"));
  EXPECT_TRUE(outcome.response) << outcome.reason;
  EXPECT_EQ(server.host(), "etcd.test");
  EXPECT_THAT(server.request(),
              HasSubstr("\r\nHost: etcd.test:" + std::to_string(server.port()) + "\r\n"));
}

TEST_F(TlsClient, LocalhostIsAName) {
  files_ = authority_.issue("DNS:localhost");
  files_.ca.clear();
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {});
  const Outcome outcome = run(server.url("localhost"));
  EXPECT_TRUE(outcome.response) << outcome.reason;
  EXPECT_EQ(server.host(), "localhost");
}

TEST_F(TlsClient, ANumericHostIsNotNamedInTheHandshake) {
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {});
  EXPECT_TRUE(run(server.url()).response);
  EXPECT_EQ(server.host(), "");
}

TEST_F(TlsClient, AnotherAuthorityIsNotTrusted) {
  fo::test::Authority other;
  const Outcome outcome = ask(other.issue("IP:127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(outcome.status, ExitStatus::kConfig);
  EXPECT_THAT(outcome.reason, StartsWith("fetch 'https://127.0.0.1:"));
  EXPECT_THAT(outcome.reason, HasSubstr("/': the certificate was rejected: "));
}

TEST_F(TlsClient, AnotherNameIsNotTrusted) {
  Outcome outcome = ask(authority_.issue("DNS:other.test,IP:127.0.0.1"), "localhost");
  EXPECT_EQ(outcome.status, ExitStatus::kConfig);
  EXPECT_THAT(outcome.reason, HasSubstr("the certificate was rejected: hostname mismatch"));
  outcome = ask(authority_.issue("DNS:localhost,IP:127.0.0.2"), "127.0.0.1");
  EXPECT_EQ(outcome.status, ExitStatus::kConfig);
  EXPECT_THAT(outcome.reason, HasSubstr("the certificate was rejected: IP address mismatch"));
}

TEST_F(TlsClient, ReadsItsFilesAgainOnlyAfterAChangeAndChecksEachHost) {
  net::TlsFiles files = authority_.issue("IP:127.0.0.1");
  options_.tls->ca = authority_.path("authorities");
  os::write_file_atomic(options_.tls->ca, os::read_file(files.ca, base::kMiB));
  files.ca.clear();
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files), {});
  Outcome outcome = run(server.url());
  EXPECT_TRUE(outcome.response) << outcome.reason;
  const base::UniqueFd opened(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ASSERT_GE(::inotify_add_watch(opened.get(), options_.tls->ca.c_str(), IN_OPEN), 0);
  outcome = run(server.url("localhost"));
  EXPECT_THAT(outcome.reason, HasSubstr("the certificate was rejected: hostname mismatch"));
  outcome = run(server.url());
  EXPECT_TRUE(outcome.response) << outcome.reason;
  EXPECT_FALSE(os::is_readable(opened.get())) << "the file was opened again";
  const fo::test::Authority other;
  os::write_file_atomic(options_.tls->ca, os::read_file(other.ca(), base::kMiB));
  EXPECT_EQ(run(server.url()).status, ExitStatus::kConfig);
}

TEST_F(TlsClient, ANameThatOnlyTheSubjectHasIsNotTrusted) {
  // The subject of the certificate is "localhost".
  EXPECT_EQ(ask(authority_.issue("IP:127.0.0.1"), "localhost").status, ExitStatus::kConfig);
}

TEST_F(TlsClient, AnExpiredCertificateMayBeRenewed) {
  const Outcome outcome = ask(authority_.issue("IP:127.0.0.1", -1), "127.0.0.1");
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_THAT(outcome.reason, HasSubstr("certificate has expired"));
}

class TlsClientsCertificate : public TlsClient, public testing::WithParamInterface<int> {
 protected:
  /// The context of a server that requires a client certificate and uses this TLS version.
  boost::asio::ssl::context demanding() const {
    net::TlsFiles files = files_;
    files.ca = authority_.ca();
    boost::asio::ssl::context context = net::make_tls_server(files);
    SSL_CTX_set_max_proto_version(context.native_handle(), GetParam());
    return context;
  }
};
INSTANTIATE_TEST_SUITE_P(Versions, TlsClientsCertificate,
                         testing::Values(TLS1_2_VERSION, TLS1_3_VERSION));

TEST_P(TlsClientsCertificate, IsShown) {
  options_.tls = authority_.issue("DNS:client");
  const TlsServer server(loop_.get_executor(), demanding(), {});
  const Outcome outcome = run(server.url());
  EXPECT_TRUE(outcome.response) << outcome.reason;
}

TEST_P(TlsClientsCertificate, IsMissed) {
  const TlsServer server(loop_.get_executor(), demanding(), {});
  const Outcome outcome = run(server.url());
  EXPECT_EQ(outcome.status, ExitStatus::kConfig) << outcome.reason;
  EXPECT_THAT(outcome.reason, HasSubstr("the peer rejected this side: "));
}

TEST_P(TlsClientsCertificate, IsRefusedWhenAnotherAuthoritySignedIt) {
  fo::test::Authority other;
  options_.tls = other.issue("DNS:client");
  options_.tls->ca = authority_.ca();
  const TlsServer server(loop_.get_executor(), demanding(), {});
  const Outcome outcome = run(server.url());
  EXPECT_EQ(outcome.status, ExitStatus::kConfig) << outcome.reason;
}

TEST_F(TlsClient, AFileThatIsMissingEndsItBeforeAnyConnection) {
  options_.tls->ca = authority_.path("none");
  EXPECT_EQ(run("https://nobody.test/").status, ExitStatus::kNoInput);
}

TEST_F(TlsClient, AServerWithoutTlsBreaksTheProtocol) {
  // What an HTTP server answers to a client that begins with TLS.
  tcp::acceptor acceptor(loop_, {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket peer(loop_);
  acceptor.async_accept(peer, [&](const boost::system::error_code& error) {
    ASSERT_FALSE(error);
    const std::string answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    boost::asio::write(peer, boost::asio::buffer(answer));
  });
  const Outcome outcome =
      run("https://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()) + "/");
  EXPECT_EQ(outcome.status, ExitStatus::kProtocol) << outcome.reason;
}

TEST_F(TlsClient, AServerThatHangsUpInTheHandshakeIsUnavailable) {
  tcp::acceptor acceptor(loop_, {boost::asio::ip::address_v4::loopback(), 0});
  acceptor.async_accept([](const boost::system::error_code&, tcp::socket) {});
  const Outcome outcome =
      run("https://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port()) + "/");
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable) << outcome.reason;
}

TEST_F(TlsClient, TheDeadlineCoversTheHandshakeAndTheAnswer) {
  for (const Stop stop : {Stop::kAccepted, Stop::kHandsShaken, Stop::kRequestRead}) {
    const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {.stop = stop});
    const Outcome outcome = run(server.url(), Deadline::after(std::chrono::milliseconds(50)));
    EXPECT_EQ(outcome.status, ExitStatus::kTryAgain);
    EXPECT_EQ(outcome.reason, "fetch '" + server.url() + "': timed out");
  }
}

class TlsClientsAnswer : public TlsClient {
 protected:
  Outcome take(const std::string& answer, bool close_notify) {
    const TlsServer::Behaviour behaviour{.answer = answer, .close_notify = close_notify};
    const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), behaviour);
    return run(server.url());
  }
};

TEST_F(TlsClientsAnswer, EndsWhereItsLengthSays) {
  const Outcome outcome = take("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false);
  ASSERT_TRUE(outcome.response) << outcome.reason;
  EXPECT_EQ(outcome.response->body, "hi");
}

TEST_F(TlsClientsAnswer, CutOffIsUnavailable) {
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
  for (std::size_t size = 0; size < answer.size(); ++size) {
    for (const bool close_notify : {false, true}) {
      const Outcome outcome = take(answer.substr(0, size), close_notify);
      EXPECT_EQ(outcome.status, ExitStatus::kUnavailable) << size << outcome.reason;
    }
  }
}

TEST_F(TlsClientsAnswer, OfNoLengthEndsOnlyWhereTheServerSaysSo) {
  const std::string answer = "HTTP/1.0 200 OK\r\n\r\nall of it";
  const Outcome whole = take(answer, true);
  ASSERT_TRUE(whole.response) << whole.reason;
  EXPECT_EQ(whole.response->body, "all of it");
  EXPECT_EQ(take(answer, false).status, ExitStatus::kUnavailable);
}

TEST_F(TlsClientsAnswer, MayBeLong) {
  const std::string body(3 * base::kMiB, 'x');
  const Outcome outcome =
      take("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
           true);
  ASSERT_TRUE(outcome.response) << outcome.reason;
  EXPECT_EQ(outcome.response->body, body);
}

/// A listener whose backlog is full: further connections get no answer. Throws if the port is in
/// use.
class FullPort {
 public:
  FullPort(boost::asio::io_context& loop, const std::string& host, unsigned short port)
      : acceptor_(loop) {
    acceptor_.open(tcp::v4());
    acceptor_.set_option(tcp::acceptor::reuse_address(true));
    acceptor_.bind({boost::asio::ip::make_address(host), port});
    acceptor_.listen(0);
    tcp::socket waiting(loop);
    waiting.connect(acceptor_.local_endpoint());
    waiting_ = std::make_unique<tcp::socket>(std::move(waiting));
  }
  [[nodiscard]] unsigned short port() const { return acceptor_.local_endpoint().port(); }

 private:
  tcp::acceptor acceptor_;
  std::unique_ptr<tcp::socket> waiting_;
};

class ManyAddresses : public TlsClient {
 protected:
  /// "etcd.test" has the addresses 127.0.0.2 and 127.0.0.1, in this order.
  ManyAddresses() { options_.name_servers = names_.address(); }

  static std::optional<std::string> addresses_of(const DnsQuestion& question) {
    if (question.is_ipv6) return dns_answer(question, {});
    return dns_answer(question, {"\x7f\0\0\2"s, "\x7f\0\0\1"s});
  }

  /// Calls `listen`, which listens on a free port of 127.0.0.1 and returns it, until that port is
  /// free at 127.0.0.2 too, which another test may use. Makes that one full.
  std::unique_ptr<FullPort> beside(const std::function<unsigned short()>& listen) {
    for (;;) {
      try {
        return std::make_unique<FullPort>(loop_, "127.0.0.2", listen());
      } catch (const boost::system::system_error& error) {
        if (error.code() != boost::asio::error::address_in_use) throw;
      }
    }
  }

  DnsServer names_{loop_.get_executor(), addresses_of};
};

TEST_F(ManyAddresses, OneThatRefusesIsPassedOver) {
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), {});
  const Outcome outcome = run(server.url("etcd.test"));
  EXPECT_TRUE(outcome.response) << outcome.reason;
}

TEST_F(ManyAddresses, OneThatIsDeafLeavesTimeForTheOther) {
  std::optional<TlsServer> server;
  const auto full = beside([&] {
    server.emplace(loop_.get_executor(), net::make_tls_server(files_), TlsServer::Behaviour{});
    return server->port();
  });
  const Outcome outcome =
      run(server->url("etcd.test"), Deadline::after(std::chrono::milliseconds(2000)));
  EXPECT_TRUE(outcome.response) << outcome.reason;
}

TEST_F(ManyAddresses, TheLastRefusalIsTold) {
  unsigned short port = 0;
  {
    const tcp::acceptor nobody(loop_, {boost::asio::ip::address_v4::loopback(), 0});
    port = nobody.local_endpoint().port();
  }
  const std::string url = "https://etcd.test:" + std::to_string(port) + "/";
  const Outcome outcome = run(url);
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_EQ(outcome.reason, "fetch '" + url + "': Connection refused");
}

TEST_F(ManyAddresses, AllOfThemDeafTimesOut) {
  std::optional<FullPort> second;
  const auto first = beside([&] { return second.emplace(loop_, "127.0.0.1", 0).port(); });
  const std::string url = "https://etcd.test:" + std::to_string(second->port()) + "/";
  EXPECT_EQ(run(url, Deadline::after(std::chrono::milliseconds(50))).status, ExitStatus::kTryAgain);
}

TEST_F(TlsClient, ANameThatNobodyKnowsIsUnavailable) {
  const DnsServer names(loop_.get_executor(),
                        [](const DnsQuestion& question) { return dns_answer(question, {}, 3); });
  options_.name_servers = names.address();
  const Outcome outcome = run("https://nobody.test/");
  EXPECT_EQ(outcome.status, ExitStatus::kUnavailable);
  EXPECT_EQ(outcome.reason, "resolve 'nobody.test': Domain name not found");
}

TEST_F(TlsClient, IsCancelledWhileItLooksUp) {
  const DnsServer names(loop_.get_executor(), [this](const DnsQuestion&) {
    cancel();
    return std::nullopt;
  });
  options_.name_servers = names.address();
  expect_cancelled("https://etcd.test/");
}

TEST_F(TlsClient, IsCancelledWhileItConnects) {
  const FullPort full(loop_, "127.0.0.1", 0);
  // Runs after the fetch has begun.
  boost::asio::post(loop_, [this] { cancel(); });
  expect_cancelled("https://127.0.0.1:" + std::to_string(full.port()) + "/");
}

TEST_F(TlsClient, ItsSocketIsNotInherited) {
  const FullPort full(loop_, "127.0.0.1", 0);
  const std::set<int> before = fo::test::inherited_fds();
  const std::ptrdiff_t all_before = fo::test::open_fds();
  // A single post would run before the fetch begins.
  boost::asio::post(loop_, [&] {
    boost::asio::post(loop_, [&] {
      EXPECT_GT(fo::test::open_fds(), all_before);
      EXPECT_EQ(fo::test::inherited_fds(), before);
      cancel();
    });
  });
  expect_cancelled("https://127.0.0.1:" + std::to_string(full.port()) + "/");
}

TEST_F(TlsClient, IsCancelledWhileItWaitsForAUnixSocketsBacklog) {
  const fo::test::TempDir dir;
  const base::UniqueFd listener = os::listen_unix(dir.path("s"), 0600, 0);
  const base::UniqueFd waiting = os::connect_unix(dir.path("s"), soon());
  boost::asio::post(loop_, [this] { cancel(); });
  expect_cancelled("unix:" + dir.path("s") + ":/");
}

TEST_F(TlsClient, IsCancelledInEveryStepOfAServer) {
  method_ = "POST";
  // The body exceeds the socket buffers, so it is still being written at each stop.
  options_.body.assign(32 * base::kMiB, 'x');
  for (const Stop stop : {Stop::kAccepted, Stop::kHandsShaken, Stop::kRequestRead}) {
    TlsServer::Behaviour behaviour{.stop = stop};
    behaviour.on_stop = [this] { cancel(); };
    const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), behaviour);
    expect_cancelled(server.url());
  }
}

TEST_F(TlsClient, IsCancelledWhileItWaitsForTheAnswer) {
  TlsServer::Behaviour behaviour{.stop = Stop::kRequestRead};
  behaviour.on_stop = [this] { cancel(); };
  const TlsServer server(loop_.get_executor(), net::make_tls_server(files_), behaviour);
  expect_cancelled(server.url());
}

TEST_F(TlsClient, MayBeDestroyedInEveryStep) {
  for (const Stop stop :
       {Stop::kAccepted, Stop::kHandsShaken, Stop::kRequestRead, Stop::kAnswered}) {
    boost::asio::io_context loop(1);
    TlsServer::Behaviour behaviour{.stop = stop};
    behaviour.on_stop = [&loop] { loop.stop(); };
    behaviour.answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi";
    const TlsServer server(loop.get_executor(), net::make_tls_server(files_), behaviour);
    std::optional<Response> response;
    loop::spawn(
        loop, loop::store(async_fetch("GET", server.url(), Deadline::never(), options_), response),
        [&loop](const std::exception_ptr&) { loop.stop(); });
    loop.run();
  }
}

}  // namespace
}  // namespace fo::http::test
