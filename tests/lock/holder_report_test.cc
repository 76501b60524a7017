// Reports of a lock's holder, which no waiter waits for.
#include "lock/holder_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "http/server.h"
#include "lock/lockd/lockd_protocol.h"
#include "lock/support.h"

namespace fo::lock {
namespace {

using base::UniqueFd;
using testing::HasSubstr;

bool has_client(const UniqueFd& listener, int milliseconds) {
  pollfd ready{listener.get(), POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) == 1;
}

TEST(HolderReport, DoesNotHoldUpWhoeverWaits) {
  const http::Listener server = http::listen_tcp("127.0.0.1:0");
  const UniqueFd& listener = server.fd;
  const std::string uri = "tcp:127.0.0.1:" + std::to_string(server.port);
  testing::internal::CaptureStderr();
  {
    HolderReport report({parse_lock_uri(uri)}, "engine-1");
    // Returns before the answer below; the second call sends no further query.
    report();
    report();
    ASSERT_TRUE(has_client(listener, 20'000));
    const UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(connection);
    char last = 0;
    while (last != '\n') ASSERT_EQ(::read(connection.get(), &last, 1), 1);
    const std::string line = encode_answer(StatusAnswer{.holder = "engine-0", .generation = 7});
    ASSERT_EQ(::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(line.size()));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("waiting for lock '" + uri + "': held by 'engine-0'"));
  EXPECT_FALSE(has_client(listener, 0));
}

}  // namespace
}  // namespace fo::lock
