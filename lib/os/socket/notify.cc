#include "os/socket/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "os/log.h"

namespace fo::os {
namespace {

// Fits into any datagram.
constexpr std::size_t kMaxText = 1024;
constexpr timeval kTimeForReady{0, 100'000};
constexpr std::uint64_t kMaxMicroseconds = std::uint64_t{1} << 53;

// The variable's value, which is removed from the environment; empty if it is unset.
std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

bool can_be_sent_to(const std::string& address) {
  const bool has_kind = address.starts_with('/') || address.starts_with('@');
  return has_kind && address.size() > 1 && address.size() < sizeof(sockaddr_un::sun_path);
}

std::optional<base::Duration> read_interval(const std::string& usec, const std::string& pid) {
  if (!pid.empty() && base::parse_uint(pid) != static_cast<std::uint64_t>(::getpid())) {
    return std::nullopt;
  }
  const auto limit = base::parse_uint(usec);
  if (!limit || *limit == 0 || *limit > kMaxMicroseconds) return std::nullopt;
  return base::Duration(std::chrono::microseconds(*limit)) / 2;
}

}  // namespace

Notifier::Notifier() : address_(take_variable("NOTIFY_SOCKET")) {
  const std::string usec = take_variable("WATCHDOG_USEC");
  const std::string pid = take_variable("WATCHDOG_PID");
  if (address_.empty()) return;
  if (can_be_sent_to(address_)) {
    fd_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd_ && ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &kTimeForReady,
                            sizeof kTimeForReady) != 0) {
      fd_.reset();
    }
  } else {
    log(LogLevel::kWarning, "use NOTIFY_SOCKET {}: not the address of a socket",
        base::quoted(address_));
  }
  if (fd_) interval_ = read_interval(usec, pid);
}

// The manager ends a service that never becomes ready, so this one waits a little for a busy
// manager.
void Notifier::ready() const { send("READY=1", 0); }

void Notifier::status(std::string_view text) const {
  std::string message = "STATUS=";
  message += text.substr(0, kMaxText);
  // A newline would begin a second message.
  std::replace(message.begin(), message.end(), '\n', ' ');
  send(message, MSG_DONTWAIT);
}

void Notifier::stopping() const { send("STOPPING=1", MSG_DONTWAIT); }

void Notifier::alive() const { send("WATCHDOG=1", MSG_DONTWAIT); }

void Notifier::send(std::string_view message, int flags) const {
  if (!fd_) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  if (address_.starts_with('@')) {
    address.sun_path[0] = '\0';  // an abstract name ends at its length only
  } else {
    ++size;
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (::sendto(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL | flags, generic, size) <
      0) {
    const int err = errno;
    log(LogLevel::kDebug, "notify the service manager at {}: {}", base::quoted(address_),
        std::strerror(err));
  }
}

}  // namespace fo::os
