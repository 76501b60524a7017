#include "os/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/cannot_create.h"
#include "base/error.h"
#include "base/units.h"
#include "os/input.h"

namespace fo::os {

using base::Error;
using base::ExitStatus;
using base::quoted;
using base::throw_errno;
using base::UniqueFd;

UniqueFd open_file(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) throw_errno(errno, "open " + quoted(path));
  return fd;
}

std::string read_file(const std::string& path, base::ByteCount limit) {
  return read_all(open_file(path, O_RDONLY).get(), "read " + quoted(path), limit);
}

std::string read_all(int fd, const std::string& what, base::ByteCount limit) {
  std::string content;
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, what);
    if (got == 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(got));
    if (content.size() > limit) {
      throw Error(ExitStatus::kBadData, what + ": longer than " + base::format_size(limit));
    }
  }
}

void write_all(int fd, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_errno(errno, what);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void write_file_atomic(const std::string& path, std::string_view content, mode_t mode) {
  const std::string what = "write " + quoted(path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw Error(ExitStatus::kCannotCreate, what + ": not a regular file");
  }
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) base::throw_cannot_create(errno, what);
  try {
    write_all(fd.get(), content, what);
    if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0 ||
        ::rename(temporary.c_str(), path.c_str()) != 0) {
      throw_errno(errno, ExitStatus::kIoError, what);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // Else a power failure may bring the old file back.
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd parent = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (::fsync(parent.get()) != 0) throw_errno(errno, ExitStatus::kIoError, what);
}

}  // namespace fo::os
