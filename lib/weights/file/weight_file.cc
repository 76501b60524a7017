#include "weights/file/weight_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <utility>

#include "base/error.h"
#include "os/file/file.h"

namespace fo::weights {
namespace {

using base::ByteCount;
using base::Error;
using base::ExitStatus;
using base::throw_errno;

// The kernel's read-ahead is as fast for fewer bytes.
constexpr ByteCount kMinDirect = 512 * base::kKiB;

struct stat status_of(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_errno(errno, "stat " + base::quoted(path));
  return status;
}

// Opens the same file, even if its name was reused.
base::UniqueFd open_direct(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return base::UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}

// The offset of a byte to query. It is random, because newer kernels start to read the page that is
// queried.
ByteCount random_place(ByteCount size) {
  thread_local std::minstd_rand random{static_cast<std::minstd_rand::result_type>(
      std::chrono::steady_clock::now().time_since_epoch().count())};
  return std::uniform_int_distribution<ByteCount>(0, size - 1)(random);
}

}  // namespace

// The open does not block, so that a FIFO can be refused.
WeightFile::WeightFile(const std::string& path)
    : WeightFile(os::open_file(path, O_RDONLY | O_NONBLOCK), path) {}

WeightFile::WeightFile(base::UniqueFd fd, std::string path)
    : path_(std::move(path)), fd_(std::move(fd)) {
  const struct stat status = status_of(fd_.get(), path_);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitStatus::kBadData, "read " + base::quoted(path_) + ": not a regular file");
  }
  size_ = static_cast<ByteCount>(status.st_size);
  modified_ = status.st_mtim;
  if (size_ >= kMinDirect) direct_ = open_direct(fd_.get());
}

void WeightFile::read(std::span<std::byte> to, ByteCount offset) const {
  iovec piece{to.data(), to.size()};
  read({&piece, 1}, offset);
}

void WeightFile::read(std::span<iovec> to, ByteCount offset) const {
  while (!to.empty()) {
    if (to.front().iov_len == 0) {
      to = to.subspan(1);
      continue;
    }
    const ssize_t got =
        ::preadv(fd_.get(), to.data(), static_cast<int>(to.size()), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(errno, ExitStatus::kIoError, "read " + base::quoted(path_));
    if (got == 0) {
      throw Error(ExitStatus::kBadData, "read " + base::quoted(path_) +
                                            ": it is truncated at byte " + std::to_string(offset));
    }
    offset += static_cast<ByteCount>(got);
    for (auto left = static_cast<std::size_t>(got); left > 0;) {
      const std::size_t taken = std::min(left, to.front().iov_len);
      to.front().iov_base = static_cast<std::byte*>(to.front().iov_base) + taken;
      to.front().iov_len -= taken;
      left -= taken;
      if (to.front().iov_len == 0) to = to.subspan(1);
    }
  }
}

bool WeightFile::is_cold(ByteCount offset, ByteCount size) const {
  if (!direct_ || size < kMinDirect) return false;
  std::byte byte{};
  const iovec piece{&byte, 1};
  const auto at = static_cast<off_t>(offset + random_place(size));
  return ::preadv2(fd_.get(), &piece, 1, at, RWF_NOWAIT) < 0 && errno == EAGAIN;
}

void WeightFile::read_direct(std::span<std::byte> to, ByteCount offset) const {
  const std::size_t wanted = std::min<ByteCount>(to.size(), size_ - std::min(offset, size_));
  std::size_t done = 0;
  while (done < wanted && done % kDirectAlignment == 0) {
    const std::span<std::byte> rest = to.subspan(done);
    const ssize_t got =
        ::pread(direct_.get(), rest.data(), rest.size(), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    // On any error, an ordinary read works or reports it.
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  if (done < wanted) read(to.first(wanted).subspan(done), offset + done);
}

void WeightFile::check_unchanged() const {
  const struct stat status = status_of(fd_.get(), path_);
  if (static_cast<ByteCount>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    throw Error(ExitStatus::kBadData,
                "read " + base::quoted(path_) + ": it was modified meanwhile");
  }
}

}  // namespace fo::weights
