// Descriptors that are made outside of asio and then watched by its loop. asio's own constructors
// and assign() leak a descriptor that the loop has no room for, and what they throw is no Error.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <boost/system/error_code.hpp>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"

namespace fo::loop {

/// Gives `fd` to `watched`: a descriptor of a loop, or with its `protocol` a socket or an acceptor,
/// not open before. Where there is an `error`, `watched` stays closed, and `fd` is closed too.
template <typename Watched, typename... Protocol>
void adopt(Watched& watched, base::UniqueFd fd, boost::system::error_code& error,
           const Protocol&... protocol) {
  watched.assign(protocol..., fd.get(), error);
  if (!error) static_cast<void>(fd.release());
}

/// The same, or Error(kOsError): "`what`: reason".
template <typename Watched, typename... Protocol>
void adopt(Watched& watched, base::UniqueFd fd, const std::string& what,
           const Protocol&... protocol) {
  boost::system::error_code error;
  adopt(watched, std::move(fd), error, protocol...);
  if (error) throw base::Error(base::ExitStatus::kOsError, what, std::error_code(error));
}

/// A descriptor of our own beside somebody else's, above the standard ones. Error(kOsError):
/// "`what`: reason".
inline base::UniqueFd duplicate(int fd, const std::string& what) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) base::throw_errno(errno, base::ExitStatus::kOsError, what);
  return copy;
}

/// Of a socket that somebody else made: AF_INET, AF_INET6, AF_UNIX. Error(kOsError): "`what`:
/// reason".
inline int family_of(int socket, const std::string& what) {
  int family = 0;
  socklen_t size = sizeof family;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) {
    base::throw_errno(errno, base::ExitStatus::kOsError, what);
  }
  return family;
}

}  // namespace fo::loop
