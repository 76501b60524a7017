// Adds descriptors made elsewhere to an asio loop. asio's own constructors and assign() leak a
// descriptor if the loop has no room for it, and do not throw an Error.
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

/// Gives `fd` to `watched`: a descriptor of a loop, or with `protocol` a socket or acceptor, which
/// must not be open. On an `error`, `watched` stays closed and `fd` is closed.
template <typename Watched, typename... Protocol>
void adopt(Watched& watched, base::UniqueFd fd, boost::system::error_code& error,
           const Protocol&... protocol) {
  watched.assign(protocol..., fd.get(), error);
  if (!error) static_cast<void>(fd.release());
}

/// The same, but throws Error(kOsError): "`what`: reason".
template <typename Watched, typename... Protocol>
void adopt(Watched& watched, base::UniqueFd fd, const std::string& what,
           const Protocol&... protocol) {
  boost::system::error_code error;
  adopt(watched, std::move(fd), error, protocol...);
  if (error) throw base::Error(base::ExitStatus::kOsError, what, std::error_code(error));
}

/// A copy of `fd` above the standard descriptors. Throws Error(kOsError): "`what`: reason".
inline base::UniqueFd duplicate(int fd, const std::string& what) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy) base::throw_errno(errno, base::ExitStatus::kOsError, what);
  return copy;
}

/// The address family of `socket`: AF_INET, AF_INET6 or AF_UNIX. Throws Error(kOsError): "`what`:
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
