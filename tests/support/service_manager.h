// A stand-in of a service manager, which reads what a service tells it by sd_notify(3).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/unique_fd.h"

namespace fo::test {

/// Removes a manager's variables from the environment.
inline void forget_service_manager() {
  for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
}

/// The service manager's socket, bound for datagrams.
class ServiceManager {
 public:
  explicit ServiceManager(const std::string& name)
      : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    const bool is_abstract = name.starts_with('@');
    if (is_abstract) address.sun_path[0] = '\0';
    const std::size_t size = offsetof(sockaddr_un, sun_path) + name.size() + (is_abstract ? 0 : 1);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::bind(fd_.get(), generic, static_cast<socklen_t>(size)), 0) << name;
  }
  /// The next message; empty if there is none. Local datagrams arrive at once.
  [[nodiscard]] std::string next() const {
    std::array<char, 8192> buffer;
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    return got < 0 ? "" : std::string(buffer.data(), static_cast<std::size_t>(got));
  }

 private:
  base::UniqueFd fd_;
};

}  // namespace fo::test
