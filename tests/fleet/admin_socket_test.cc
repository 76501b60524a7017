#include "fleet/admin_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "http/pages.h"
#include "http/server.h"
#include "loop/test_loop.h"
#include "os/process/process.h"
#include "os/socket/unix_socket.h"
#include "support/fds.h"
#include "support/must_run.h"
#include "support/soon.h"
#include "support/stderr_text.h"
#include "support/temp_dir.h"

namespace fo::test {
namespace {

class AdminSocket : public FdCounting {
 protected:
  AdminSocket() { server_.listen(os::listen_unix(path_)); }

  /// In another process, as this user: 0 with an answer, 1 without one.
  os::Child ask_as(uid_t user) {
    return os::fork_child([this, user] {
      if (::setuid(user) != 0) return 2;
      const base::UniqueFd connected = os::connect_unix(path_, soon());
      constexpr std::string_view kRequest =
          "GET /state HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
      ::send(connected.get(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
      char byte = 0;
      return ::recv(connected.get(), &byte, 1, 0) == 1 ? 0 : 1;
    });
  }
  int status_of(const os::Child& child) {
    std::optional<int> status;
    loop_.run_until([&] { return (status = child.wait(in_ms(0))).has_value(); });
    return *status;
  }

  TestLoop loop_;
  const TempDir folder_;
  const std::string path_ = folder_.path("admin.sock");
  http::Server server_{
      loop_.io().get_executor(),
      http::make_handler({http::get_page("/state",
                                         [] {
                                           return http::Response{200, "text/plain", "a", {}};
                                         })}),
      fleet::admin_limits()};
};

TEST_F(AdminSocket, OurOwnUserGetsAnAnswer) { EXPECT_EQ(status_of(ask_as(::geteuid())), 0); }

TEST_F(AdminSocket, AnotherUserGetsNoneWhateverTheModeOfTheFile) {
  if (::geteuid() != 0) FO_SKIP("root", "becoming another user needs root");
  const StderrText logged;
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path_, std::filesystem::perms::all);
  const os::Child child = ask_as(65534);
  EXPECT_EQ(status_of(child), 1);
  EXPECT_EQ(logged.text(), "fo: warning: accept an HTTP connection of process " +
                               std::to_string(child.pid()) + ": it belongs to another user\n");
}

}  // namespace
}  // namespace fo::test
