#include "net/stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "loop/adopt.h"
#include "loop/spawn.h"
#include "loop/test_loop.h"
#include "net/tls.h"
#include "support/authority.h"
#include "support/fds.h"

namespace fo::net {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using base::Deadline;
using base::ExitStatus;
using boost::system::error_code;
using fo::test::in_ms;
using fo::test::soon;
using Side = Stream::Side;

/// Both ends of a connection, without and with TLS.
class NetStream : public fo::test::FdCounting, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { connect(0); }

  // With TLS, the server sends `tickets` session tickets.
  void connect(std::size_t tickets) {
    int fds[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    const bool is_tls = GetParam();
    std::optional<asio::ssl::context> client;
    std::optional<asio::ssl::context> server;
    if (is_tls) {
      authority_ = std::make_unique<fo::test::Authority>();
      TlsFiles files = authority_->issue("DNS:localhost");
      client = make_tls_client({authority_->ca(), "", ""});
      files.ca.clear();
      server = make_tls_server(files);
      ::SSL_CTX_set_num_tickets(server->native_handle(), tickets);
    }
    client_ = make(base::UniqueFd(fds[0]), std::move(client));
    server_ = make(base::UniqueFd(fds[1]), std::move(server));
    loop_.run(handshake());
  }

  std::unique_ptr<Stream> make(base::UniqueFd fd, std::optional<asio::ssl::context> context) {
    Stream::Socket socket(loop_.io());
    loop::adopt(socket, std::move(fd), "adopt a socket",
                asio::generic::stream_protocol(AF_UNIX, 0));
    return std::make_unique<Stream>(std::move(socket), std::move(context));
  }
  awaitable<void> handshake() {
    bool is_done = false;
    const auto serve = [&]() -> awaitable<void> {
      error_code error;
      const std::string no_host;
      co_await server_->handshake(Side::kServer, no_host, soon(), error);
      EXPECT_FALSE(error) << error.message();
      is_done = true;
    };
    loop::spawn(loop_.io(), serve());
    error_code error;
    const std::string host = "localhost";
    co_await client_->handshake(Side::kClient, host, soon(), error);
    EXPECT_FALSE(error) << error.message();
    asio::steady_timer timer(loop_.io());
    while (!is_done) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
  }

  static awaitable<std::string> read(Stream& stream, Deadline deadline, error_code& error) {
    std::array<char, 100> space;
    const std::size_t count = co_await stream.read_some(asio::buffer(space), deadline, error);
    co_return std::string(space.data(), count);
  }
  static awaitable<std::string> read(Stream& stream) {
    error_code error;
    std::string text = co_await read(stream, soon(), error);
    EXPECT_FALSE(error) << error.message();
    co_return text;
  }
  static awaitable<void> write(Stream& stream, std::string text) {
    error_code error;
    const std::size_t count = co_await stream.write(asio::buffer(text), soon(), error);
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(count, text.size());
  }

  fo::test::TestLoop loop_;
  std::unique_ptr<fo::test::Authority> authority_;
  std::unique_ptr<Stream> client_;
  std::unique_ptr<Stream> server_;
};
INSTANTIATE_TEST_SUITE_P(Tls, NetStream, testing::Bool());

TEST_P(NetStream, CarriesBytesBothWays) {
  const auto body = [&]() -> awaitable<void> {
    co_await write(*client_, "hello");
    const std::string asked = co_await read(*server_);
    EXPECT_EQ(asked, "hello");
    co_await write(*server_, "world");
    const std::string answered = co_await read(*client_);
    EXPECT_EQ(answered, "world");
  };
  loop_.run(body());
}

TEST_P(NetStream, ADeadlineOfAReadLosesNothing) {
  const auto body = [&]() -> awaitable<void> {
    for (int i = 0; i < 5; ++i) {
      error_code error;
      // A deadline after the previous one, then an earlier one.
      co_await read(*client_, in_ms(i % 2 == 0 ? 5 : 1), error);
      EXPECT_EQ(error, Stream::kDeadlinePassed);
      EXPECT_EQ(client_->failure("read", error).status(), ExitStatus::kTryAgain);
      co_await write(*server_, "x" + std::to_string(i));
      const std::string text = co_await read(*client_);
      EXPECT_EQ(text, "x" + std::to_string(i));
    }
    // Available bytes are read even after the deadline.
    co_await write(*server_, "y");
    while (client_->is_quiet()) {
      asio::steady_timer timer(loop_.io(), std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
    error_code error;
    const std::string text =
        co_await read(*client_, Deadline::after(base::Duration::zero()), error);
    EXPECT_EQ(text, "y");
  };
  loop_.run(body());
}

TEST_P(NetStream, AReadPreparesSpaceOnceBytesHaveArrived) {
  const auto body = [&]() -> awaitable<void> {
    std::array<char, 2> space{};
    int prepared = 0;
    const Stream::Prepare prepare = [&] {
      ++prepared;
      return asio::buffer(space);
    };
    error_code error;
    co_await client_->read_some(prepare, in_ms(5), error);
    EXPECT_EQ(error, Stream::kDeadlinePassed);
    const bool is_tls = GetParam();
    EXPECT_EQ(prepared, is_tls ? 1 : 0);
    co_await write(*server_, "abc");
    for (const std::string expected : {"ab", "c"}) {
      const std::size_t count = co_await client_->read_some(prepare, soon(), error);
      EXPECT_FALSE(error) << error.message();
      EXPECT_EQ(std::string(space.data(), count), expected);
    }
    EXPECT_EQ(prepared, is_tls ? 3 : 2);
    // Bytes that have arrived are read even after the deadline.
    co_await write(*server_, "d");
    while (client_->is_quiet()) {
      asio::steady_timer timer(loop_.io(), std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
    const std::size_t late =
        co_await client_->read_some(prepare, Deadline::after(base::Duration::zero()), error);
    EXPECT_EQ(std::string(space.data(), late), "d");
    co_await server_->shut_down(soon());
    co_await client_->read_some(prepare, soon(), error);
    EXPECT_EQ(error, asio::error::eof);
    if (is_tls) co_return;
    client_->close();
    co_await client_->read_some(prepare, soon(), error);
    EXPECT_EQ(error, asio::error::operation_aborted);
  };
  loop_.run(body());
}

TEST_P(NetStream, IsNotQuietWhileBytesWaitForAReader) {
  const auto body = [&]() -> awaitable<void> {
    // Session tickets have arrived, which are read with the first bytes.
    EXPECT_EQ(client_->is_quiet(), !GetParam());
    co_await write(*server_, "a");
    co_await read(*client_);
    EXPECT_TRUE(client_->is_quiet());
    // With TLS, one read of the socket takes both records, and then half of the second is
    // decrypted.
    co_await write(*server_, "bc");
    co_await write(*server_, "de");
    std::array<char, 1> space{};
    for (const char expected : std::string("bcde")) {
      EXPECT_FALSE(client_->is_quiet()) << expected;
      error_code error;
      co_await client_->read_some(asio::buffer(space), soon(), error);
      EXPECT_FALSE(error) << error.message();
      EXPECT_EQ(space[0], expected);
    }
    EXPECT_TRUE(client_->is_quiet());
    // With TLS, the end is a record, too.
    co_await write(*server_, "f");
    co_await server_->shut_down(soon());
    const std::string last = co_await read(*client_);
    EXPECT_EQ(last, "f");
    EXPECT_FALSE(client_->is_quiet());
  };
  connect(2);
  loop_.run(body());
}

TEST_P(NetStream, AReadIsInterruptedAndGoesOn) {
  const auto body = [&]() -> awaitable<void> {
    asio::post(loop_.io(), [&] { client_->interrupt_read(); });
    error_code error;
    co_await read(*client_, Deadline::never(), error);
    EXPECT_EQ(error, Stream::kDeadlinePassed);
    // Without a pending read, interrupt_read() has no effect.
    client_->interrupt_read();
    co_await write(*server_, "x");
    const std::string text = co_await read(*client_);
    EXPECT_EQ(text, "x");
  };
  loop_.run(body());
}

TEST_P(NetStream, AWriterThatNeedNotWaitGivesWayToOthers) {
  const auto body = [&]() -> awaitable<void> {
    bool has_run = false;
    asio::post(loop_.io(), [&] { has_run = true; });
    // The socket's buffer has room for all of it.
    for (int i = 0; i < 100; ++i) co_await write(*client_, "x");
    EXPECT_TRUE(has_run);
  };
  loop_.run(body());
}

TEST_P(NetStream, ADeadlineOfAWriteClosesIt) {
  const auto body = [&]() -> awaitable<void> {
    const std::string much(8 << 20, 'x');
    error_code error;
    const std::size_t count = co_await client_->write(asio::buffer(much), in_ms(20), error);
    EXPECT_EQ(error, Stream::kDeadlinePassed);
    EXPECT_LT(count, much.size());
    EXPECT_FALSE(client_->is_open());
  };
  loop_.run(body());
}

TEST_P(NetStream, AReadThatTimesOutLeavesAWriteAlone) {
  const std::string much(4 << 20, 'x');
  bool is_written = false;
  const auto writer = [&]() -> awaitable<void> {
    co_await write(*client_, much);
    is_written = true;
  };
  const auto body = [&]() -> awaitable<void> {
    loop::spawn(loop_.io(), writer());
    for (int i = 0; i < 5; ++i) {
      error_code error;
      co_await read(*client_, in_ms(2), error);
      EXPECT_EQ(error, Stream::kDeadlinePassed);
    }
    EXPECT_FALSE(is_written);
    std::size_t sum = 0;
    while (sum < much.size()) {
      const std::string piece = co_await read(*server_);
      sum += piece.size();
      if (piece.empty()) co_return;
    }
  };
  loop_.run(body());
  loop_.run_until([&] { return is_written; });
}

TEST_P(NetStream, TheEndIsSaid) {
  const auto body = [&]() -> awaitable<void> {
    EXPECT_TRUE(server_->is_quiet());
    co_await write(*client_, "last");
    co_await client_->shut_down(soon());
    const std::string text = co_await read(*server_);
    EXPECT_EQ(text, "last");
    error_code error;
    co_await read(*server_, soon(), error);
    EXPECT_EQ(error, asio::error::eof);
    EXPECT_FALSE(server_->is_quiet());
    // The client continues to read and discards.
    server_->close();
    co_await client_->drain(soon());
  };
  loop_.run(body());
}

TEST_P(NetStream, AnEndThatIsNotSaidIsNoneOverTls) {
  const auto body = [&]() -> awaitable<void> {
    client_->close();
    error_code error;
    co_await read(*server_, soon(), error);
    EXPECT_EQ(error == asio::error::eof, !GetParam()) << error.message();
    const base::Error failure = server_->failure("read", error);
    EXPECT_EQ(failure.status(), ExitStatus::kUnavailable);
    EXPECT_STREQ(failure.what(), "read: the connection ended early");
  };
  loop_.run(body());
}

TEST_P(NetStream, DrainEndsAtItsDeadline) {
  const auto body = [&]() -> awaitable<void> {
    co_await client_->shut_down(soon());
    co_await client_->drain(in_ms(5));
  };
  loop_.run(body());
}

TEST_P(NetStream, ACancellationOfAReadLosesNothingAndOneOfAWriteClosesIt) {
  for (const bool is_reading : {true, false}) {
    asio::cancellation_signal signal;
    error_code error;
    bool is_over = false;
    const std::string much(8 << 20, 'x');
    const auto body = [&]() -> awaitable<void> {
      if (is_reading) co_await read(*client_, Deadline::never(), error);
      if (!is_reading) co_await client_->write(asio::buffer(much), Deadline::never(), error);
    };
    loop::spawn(
        loop_.io(), body(),
        [&](const std::exception_ptr& thrown) {
          EXPECT_FALSE(thrown);
          is_over = true;
        },
        signal.slot());
    asio::steady_timer timer(loop_.io(), std::chrono::milliseconds(5));
    timer.async_wait([&](const error_code&) { signal.emit(asio::cancellation_type::terminal); });
    loop_.run_until([&] { return is_over; });
    EXPECT_EQ(error, asio::error::operation_aborted);
    EXPECT_EQ(client_->is_open(), is_reading);
    if (!is_reading) continue;
    const auto go_on = [&]() -> awaitable<void> {
      co_await write(*server_, "after it");
      const std::string text = co_await read(*client_);
      EXPECT_EQ(text, "after it");
    };
    loop_.run(go_on());
  }
}

TEST_P(NetStream, ACancellationOfAWritePrecedesItsDeadline) {
  asio::cancellation_signal signal;
  error_code error;
  bool is_over = false;
  const std::string much(8 << 20, 'x');
  const auto body = [&]() -> awaitable<void> {
    asio::post(loop_.io(), [&] { signal.emit(asio::cancellation_type::terminal); });
    co_await client_->write(asio::buffer(much), in_ms(0), error);
  };
  loop::spawn(
      loop_.io(), body(),
      [&](const std::exception_ptr& thrown) {
        EXPECT_FALSE(thrown);
        is_over = true;
      },
      signal.slot());
  loop_.run_until([&] { return is_over; });
  EXPECT_EQ(error, asio::error::operation_aborted);
  EXPECT_FALSE(client_->is_open());
}

TEST_P(NetStream, CloseEndsWhatWaits) {
  const auto body = [&]() -> awaitable<void> {
    asio::post(loop_.io(), [&] { client_->close(); });
    // The second one begins after the close.
    for (int i = 0; i < 2; ++i) {
      error_code error;
      co_await read(*client_, Deadline::never(), error);
      EXPECT_EQ(error, asio::error::operation_aborted);
    }
  };
  loop_.run(body());
}

}  // namespace
}  // namespace fo::net
