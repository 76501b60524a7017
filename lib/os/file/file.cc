#include "os/file/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/units.h"
#include "os/file/input.h"

namespace fo::os {

using base::Error;
using base::ExitStatus;
using base::throw_errno;
using base::UniqueFd;

namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

UniqueFd open_file(const std::string& path, int flags, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) throw_errno(errno, "open " + base::quoted(path));
  return fd;
}

UniqueFd open_plain_file(const std::string& path, int flags, const std::string& what, mode_t mode) {
  const auto refuse = [&](const std::string& reason) -> Error {
    return {ExitStatus::kCannotCreate, what + ": " + reason};
  };
  UniqueFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode));
  struct stat info {};
  if (!fd) {
    const int err = errno;
    const bool is_there = ::lstat(path.c_str(), &info) == 0;
    if (is_there && S_ISLNK(info.st_mode)) throw refuse("a symbolic link, which is not followed");
    if (is_there && !S_ISREG(info.st_mode)) throw refuse("not a regular file");
    if ((flags & O_CREAT) == 0) throw_errno(err, what);
    const std::optional<std::string> folder = find_missing_folder(path);
    if (folder) throw refuse("missing folder " + base::quoted(*folder));
    base::throw_cannot_create(err, what);
  }
  if (::fstat(fd.get(), &info) != 0) throw_errno(errno, what);
  if (!S_ISREG(info.st_mode)) throw refuse("not a regular file");
  if (info.st_nlink > 1) throw refuse("the file has more than one hard link");
  return fd;
}

std::optional<std::string> find_missing_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  struct stat info {};
  const bool is_there = ::stat(folder.c_str(), &info) == 0;
  const bool is_missing = is_there ? !S_ISDIR(info.st_mode) : errno == ENOENT || errno == ENOTDIR;
  return is_missing ? std::optional(folder) : std::nullopt;
}

std::string read_file(const std::string& path, base::ByteCount limit) {
  return read_all(open_file(path, O_RDONLY).get(), "read " + base::quoted(path), limit);
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

std::string input_name(const std::string& file) { return file == "-" ? "standard input" : file; }

std::string read_input(const std::string& file, base::ByteCount limit) {
  return file == "-" ? read_all(STDIN_FILENO, "read standard input", limit)
                     : read_file(file, limit);
}

void check_inputs(const std::vector<std::string>& files) {
  if (std::count(files.begin(), files.end(), "-") > 1) {
    throw Error(ExitStatus::kUsage, "standard input: can be read only once");
  }
}

std::optional<std::string> find_other_writer(const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return "it belongs to user " + std::to_string(status.st_uid);
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write to it";
  return std::nullopt;
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool is_readable(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
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
  const std::string what = "write " + base::quoted(path);
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
  // Without this, a power failure may restore the old file.
  const UniqueFd parent = open_file(folder_of(path), O_RDONLY | O_DIRECTORY);
  if (::fsync(parent.get()) != 0) throw_errno(errno, ExitStatus::kIoError, what);
}

}  // namespace fo::os
