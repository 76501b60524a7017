// Ports of 127.0.0.1 for servers of a test, or for connections that must fail.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"

namespace fo::test {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// 0 or an errno.
inline int try_connect(int fd, std::uint16_t port) {
  const sockaddr_in address = loopback(port);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(fd, any, sizeof address) == 0 ? 0 : errno;
}

/// A port that stays reserved between its listeners, so that no client gets it. Connections
/// meanwhile are refused.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in address = loopback(0);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    // Bound without listening; listeners share the port through the same option.
    if (!fd_ || ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd_.get(), any, size) != 0 || ::getsockname(fd_.get(), any, &size) != 0) {
      base::throw_errno(errno, "reserve a port");
    }
    number_ = ntohs(address.sin_port);
  }
  [[nodiscard]] std::uint16_t number() const { return number_; }
  /// Its socket, which may listen itself.
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(number_); }

 private:
  base::UniqueFd fd_;
  std::uint16_t number_ = 0;
};

}  // namespace fo::test
