#include "route/listeners.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "loop/pause.h"
#include "loop/run.h"
#include "loop/spawn.h"
#include "os/file/file.h"
#include "os/file/pipe.h"
#include "os/process/process.h"
#include "os/socket/unix_socket.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::route {
namespace {

using base::ExitStatus;
using base::UniqueFd;
using boost::asio::awaitable;
using test::soon;

std::string address_of(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

ino_t inode(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_ino;
}

// A client that is not accepted yet.
UniqueFd connect_to(std::uint16_t port) {
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(client.get(), generic, sizeof address) != 0) client.reset();
  return client;
}

bool is_accepted_by(const UniqueFd& listener) {
  return UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
}

class ListenersTest : public test::FdCounting {
 protected:
  ~ListenersTest() override { loop_.reset(); }

  /// A router on the test's loop, which never ends by itself.
  struct Router {
    Router(boost::asio::io_context& loop, const std::string& admin)
        : listeners(loop.get_executor(), admin) {}
    Listeners listeners;
    /// Whether offer() has ended.
    bool is_given = false;
  };

  void start(awaitable<void> task) {
    loop::spawn(*loop_, std::move(task), [](const std::exception_ptr& error) {
      if (error) std::rethrow_exception(error);
    });
  }
  static awaitable<void> offer(Router& router) {
    co_await router.listeners.offer();
    router.is_given = true;
  }
  static awaitable<void> take_over(Router& router, std::string address, http::Listener& listener) {
    co_await router.listeners.take_over(soon());
    listener = router.listeners.tcp(address);
  }
  static awaitable<void> own(Router& router, bool& is_owner) {
    co_await router.listeners.own();
    is_owner = true;
  }
  void run_until(const std::function<bool()>& done) {
    const base::Deadline deadline = soon();
    loop_->restart();
    while (!done() && !deadline.expired()) loop_->run_one_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(done());
  }
  http::Listener receive(Router& router, std::uint16_t port) {
    http::Listener listener;
    start(take_over(router, address_of(port), listener));
    run_until([&] { return listener.fd.valid(); });
    return listener;
  }
  void own(Router& router) {
    bool is_owner = false;
    start(own(router, is_owner));
    run_until([&] { return is_owner; });
  }
  /// The first router, which offers its sockets, and its listener.
  http::Listener begin(Router& router) {
    router.listeners.open();
    http::Listener listener = router.listeners.tcp(address_of(0));
    start(offer(router));
    return listener;
  }

  const test::TempDir folder_;
  const std::string admin_ = folder_.path("route.sock");
  const std::string next_ = admin_ + ".next";
  std::optional<boost::asio::io_context> loop_{std::in_place, 1};
};

TEST_F(ListenersTest, TheNextRouterHasTheSameSockets) {
  std::optional<Router> first(std::in_place, *loop_, admin_);
  const http::Listener listener = begin(*first);
  const ino_t admin = inode(first->listeners.admin().get());
  Router second(*loop_, admin_);
  const http::Listener received = receive(second, listener.port);
  EXPECT_TRUE(second.listeners.has_received());
  EXPECT_EQ(inode(received.fd.get()), inode(listener.fd.get()));
  EXPECT_EQ(received.port, listener.port);
  EXPECT_FALSE(first->is_given);
  own(second);
  run_until([&] { return first->is_given; });
  EXPECT_EQ(inode(second.listeners.admin().get()), admin);
  first.reset();
  EXPECT_TRUE(std::filesystem::is_socket(admin_));
  EXPECT_TRUE(std::filesystem::is_socket(next_));
  EXPECT_EQ(test::failure_of([&] { Router(*loop_, admin_).listeners.open(); }).status,
            ExitStatus::kCannotCreate);
}

TEST_F(ListenersTest, ItsNamesAreRemovedAtItsEnd) {
  {
    Router only(*loop_, admin_);
    only.listeners.open();
    EXPECT_TRUE(std::filesystem::is_socket(next_));
  }
  EXPECT_FALSE(std::filesystem::exists(admin_));
  EXPECT_FALSE(std::filesystem::exists(next_));
}

TEST_F(ListenersTest, WithoutARunningRouterThereAreNewSockets) {
  // What a killed router left.
  static_cast<void>(os::listen_unix(admin_));
  static_cast<void>(os::listen_unix(next_));
  Router router(*loop_, admin_);
  const http::Listener listener = receive(router, 0);
  EXPECT_FALSE(router.listeners.has_received());
  EXPECT_TRUE(connect_to(listener.port));
  own(router);
  EXPECT_TRUE(os::is_socket_live(admin_));
}

TEST_F(ListenersTest, AnAddressThatTheNextRouterDoesNotHaveIsClosed) {
  Router first(*loop_, admin_);
  http::Listener listener = begin(first);
  Router second(*loop_, admin_);
  const http::Listener another = receive(second, 0);
  EXPECT_NE(another.port, listener.port);
  listener.fd.reset();
  EXPECT_TRUE(connect_to(listener.port));
  own(second);
  run_until([&] { return first.is_given; });
  EXPECT_FALSE(connect_to(listener.port));
}

TEST_F(ListenersTest, TakeoversAtOnceHappenOneAfterTheOther) {
  Router first(*loop_, admin_);
  const http::Listener listener = begin(first);
  Router second(*loop_, admin_);
  Router third(*loop_, admin_);
  const auto take_and_offer = [](Router& router, std::string address) -> awaitable<void> {
    http::Listener received;
    co_await take_over(router, std::move(address), received);
    EXPECT_TRUE(router.listeners.has_received());
    co_await router.listeners.own();
    co_await offer(router);
  };
  for (Router* router : {&second, &third}) {
    start(take_and_offer(*router, address_of(listener.port)));
  }
  const auto given = [&] {
    int count = 0;
    for (const Router* router : {&first, &second, &third}) count += router->is_given;
    return count;
  };
  run_until([&] { return given() == 2; });
  EXPECT_TRUE(first.is_given);
  EXPECT_TRUE(connect_to(listener.port));
}

TEST_F(ListenersTest, ARouterThatEndsMeanwhileLeavesItsPlace) {
  std::optional<Router> first(std::in_place, *loop_, admin_);
  http::Listener listener = begin(*first);
  Router second(*loop_, admin_);
  const http::Listener received = receive(second, listener.port);
  first->listeners.withdraw_tcp("");
  loop_->restart();
  loop_->poll();
  own(second);
  EXPECT_FALSE(first->is_given);
  listener.fd.reset();
  first.reset();
  EXPECT_TRUE(os::is_socket_live(admin_));
  EXPECT_TRUE(os::is_socket_live(next_));
  const UniqueFd client = connect_to(listener.port);
  EXPECT_TRUE(is_accepted_by(received.fd));
}

TEST_F(ListenersTest, ARouterThatFinishesItsRequestsHandsItsPlaceOver) {
  Router first(*loop_, admin_);
  http::Listener listener = begin(first);
  const http::Listener metrics = first.listeners.tcp(address_of(0));
  first.listeners.withdraw_tcp(address_of(metrics.port));
  listener.fd.reset();
  EXPECT_FALSE(connect_to(listener.port));
  Router second(*loop_, admin_);
  const http::Listener opened = receive(second, listener.port);
  EXPECT_TRUE(second.listeners.has_received());
  EXPECT_EQ(inode(second.listeners.tcp(address_of(metrics.port)).fd.get()),
            inode(metrics.fd.get()));
  own(second);
  run_until([&] { return first.is_given; });
  const UniqueFd client = connect_to(listener.port);
  EXPECT_TRUE(is_accepted_by(opened.fd));
  EXPECT_TRUE(os::is_socket_live(admin_));
}

TEST_F(ListenersTest, ATakeoverWaitsForTheEndOfARouterThatHasNotBegun) {
  std::optional<Router> first(std::in_place, *loop_, admin_);
  first->listeners.open();
  Router second(*loop_, admin_);
  http::Listener received;
  start(take_over(second, address_of(0), received));
  loop_->restart();
  loop_->run_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(received.fd);
  first.reset();
  run_until([&] { return received.fd.valid(); });
  EXPECT_FALSE(second.listeners.has_received());
}

/// A router in another process, which lives until it is killed.
class OtherRouter {
 public:
  /// Offers its sockets, or with `taken` has received those of the running router, but has not told
  /// it.
  explicit OtherRouter(const std::string& admin, std::optional<std::uint16_t> taken = {}) {
    child_ = os::fork_child([&] {
      boost::asio::io_context loop(1);
      Listeners listeners(loop.get_executor(), admin);
      loop::run_to_end(loop, live(listeners, taken, pipe_.writer.get()));
      return 0;
    });
  }
  OtherRouter(const OtherRouter&) = delete;
  OtherRouter& operator=(const OtherRouter&) = delete;
  ~OtherRouter() { kill(); }

  [[nodiscard]] bool is_ready() const { return os::is_readable(pipe_.reader.get()); }
  std::uint16_t read_port() {
    std::uint16_t port = 0;
    EXPECT_EQ(::read(pipe_.reader.get(), &port, sizeof port), ssize_t{sizeof port});
    return port;
  }
  void kill() {
    if (!child_) return;
    child_->signal(SIGKILL);
    EXPECT_EQ(child_->wait(soon()), 128 + SIGKILL);
    child_.reset();
  }

 private:
  static awaitable<void> live(Listeners& listeners, std::optional<std::uint16_t> taken, int ready) {
    if (taken) {
      co_await listeners.take_over(soon());
    } else {
      listeners.open();
    }
    const http::Listener listener = listeners.tcp(address_of(taken.value_or(0)));
    if (::write(ready, &listener.port, sizeof listener.port) < 0) co_return;
    if (!taken) co_await listeners.offer();
    co_await loop::pause_for(std::chrono::hours(1));
  }

  os::Pipe pipe_;
  std::optional<os::Child> child_;
};

TEST_F(ListenersTest, ARouterThatIsKilledMeanwhileIsReplaced) {
  OtherRouter first(admin_);
  const std::uint16_t port = first.read_port();
  Router second(*loop_, admin_);
  const http::Listener received = receive(second, port);
  const UniqueFd client = connect_to(port);
  first.kill();
  const UniqueFd later = connect_to(port);
  EXPECT_TRUE(later);
  own(second);
  EXPECT_TRUE(is_accepted_by(received.fd));
  EXPECT_TRUE(is_accepted_by(received.fd));
  EXPECT_TRUE(os::is_socket_live(admin_));
  start(offer(second));
  Router third(*loop_, admin_);
  EXPECT_EQ(receive(third, port).port, port);
  EXPECT_TRUE(third.listeners.has_received());
}

TEST_F(ListenersTest, AKilledNextRouterLeavesEverythingAsItWas) {
  Router first(*loop_, admin_);
  const http::Listener listener = begin(first);
  OtherRouter second(admin_, listener.port);
  run_until([&] { return second.is_ready(); });
  second.kill();
  EXPECT_FALSE(first.is_given);
  const UniqueFd client = connect_to(listener.port);
  EXPECT_TRUE(is_accepted_by(listener.fd));
  Router third(*loop_, admin_);
  EXPECT_EQ(receive(third, listener.port).port, listener.port);
  own(third);
  run_until([&] { return first.is_given; });
}

}  // namespace
}  // namespace fo::route
