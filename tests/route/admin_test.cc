#include "route/admin.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/server.h"
#include "loop/adopt.h"
#include "loop/test_loop.h"
#include "os/socket/unix_socket.h"
#include "support/failure.h"
#include "support/fds.h"
#include "support/soon.h"
#include "support/temp_dir.h"

namespace fo::test {
namespace {

using base::ExitStatus;
using boost::asio::awaitable;
using Levels = std::vector<std::optional<std::size_t>>;

/// The admin sockets of two routers, the second of which takes over from the first.
class AdminHold : public FdCounting {
 protected:
  /// The pages of a router, which accepts from begin() on.
  struct Side {
    explicit Side(boost::asio::any_io_executor executor)
        : hold(executor), server(executor, [this](const http::Request& from, http::Reply& reply) {
            ++requests;
            return pages(from, reply);
          }) {}
    route::AdminActions actions() {
      return {.state = [] { return "{}"; },
              .requests = [] { return "{}"; },
              .drain = [](const std::string&, bool) { return true; },
              .weight = [](const std::string&, const std::string&,
                           double) -> boost::asio::awaitable<bool> { co_return true; },
              .level = [this](std::optional<std::size_t> level) { levels.push_back(level); },
              .kill = [](const std::string&) { return true; },
              .reload = [] {},
              .settings = [] { return R"({"settings":"of a router"})"; }};
    }

    route::SettingsHold hold;
    Levels levels;
    int requests = 0;
    http::Handler pages = http::make_handler(route::admin_pages(actions(), hold));
    http::Server server;
  };

  AdminHold() { begin(old_); }
  void begin(Side& side) { side.server.listen(loop::duplicate(listener_.get(), "copy a socket")); }

  route::HeldSettings hold() { return loop_.run(route::hold_settings(path_, soon())); }
  /// The router is asked by another thread, as by fo-route ctl.
  std::future<route::AdminAnswer> ask(const std::string& target,
                                      base::Duration timeout = std::chrono::minutes(1)) {
    return std::async(std::launch::async,
                      [=, this] { return route::send_to_router(path_, "POST", target, timeout); });
  }
  route::AdminAnswer await(std::future<route::AdminAnswer> answer) {
    loop_.run_until(
        [&] { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    return answer.get();
  }

  TestLoop loop_;
  const TempDir folder_;
  const std::string path_ = folder_.path("route.sock");
  const base::UniqueFd listener_ = os::listen_unix(path_);
  Side old_{loop_.io().get_executor()};
  Side next_{loop_.io().get_executor()};
};

TEST_F(AdminHold, AChangeMeanwhileReachesTheNextRouter) {
  route::HeldSettings held = hold();
  EXPECT_EQ(held.text, "{\"settings\":\"of a router\"}\n");
  std::future<route::AdminAnswer> change = ask("/level?level=2");
  loop_.run_until([&] { return old_.requests >= 2; });
  EXPECT_TRUE(old_.hold.is_held());
  begin(next_);
  old_.hold.hand_over();
  // The answer to the query of the settings ends.
  EXPECT_TRUE(loop_.run(held.connection->finish(soon())));
  // What the old router accepts after that is refused, too.
  held = {};
  const int before = old_.requests;
  loop_.run_until([&] { return old_.requests > before || !next_.levels.empty(); });
  loop_.run(old_.server.stop(soon()));
  EXPECT_TRUE(await(std::move(change)).is_found);
  EXPECT_EQ(old_.levels, Levels{});
  EXPECT_EQ(next_.levels, Levels{2});
}

TEST_F(AdminHold, ANextRouterThatEndsPreventsNoChanges) {
  route::HeldSettings first = hold();
  route::HeldSettings second = hold();
  std::future<route::AdminAnswer> change = ask("/level?level=2");
  loop_.run_until([&] { return old_.requests >= 3; });
  first = {};
  const int before = old_.requests;
  loop_.run_until([&] { return old_.requests > before; });
  EXPECT_EQ(old_.levels, Levels{});
  second = {};
  EXPECT_TRUE(await(std::move(change)).is_found);
  EXPECT_EQ(old_.levels, Levels{2});
}

TEST_F(AdminHold, OnlyWhatTheNextRouterWouldNotHaveIsRefused) {
  const route::HeldSettings held = hold();
  for (const char* target : {"/drain?id=a", "/undrain?id=a", "/weight?model=m&card=&weight=1",
                             "/level?level=auto", "/reload"}) {
    std::future<route::AdminAnswer> change = ask(target, std::chrono::milliseconds(20));
    EXPECT_EQ(status_of([&] { await(std::move(change)); }), ExitStatus::kTryAgain) << target;
  }
  EXPECT_EQ(old_.levels, Levels{});
  EXPECT_TRUE(await(ask("/kill?id=a")).is_found);
}

}  // namespace
}  // namespace fo::test
