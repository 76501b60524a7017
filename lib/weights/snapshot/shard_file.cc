#include "weights/snapshot/shard_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "os/file/file.h"
#include "weights/file/weight_file.h"

namespace fo::weights {

using base::ByteCount;
using base::ExitStatus;
using base::throw_errno;

namespace {

bool is_aligned(std::span<const std::byte> bytes, ByteCount offset) {
  return (reinterpret_cast<std::uintptr_t>(bytes.data()) | bytes.size() | offset) %
             kDirectAlignment ==
         0;
}

}  // namespace

ShardFile::ShardFile(std::string path, ByteCount size)
    : path_(std::move(path)), fd_(os::open_file(path_, O_CREAT | O_EXCL | O_WRONLY, 0666)) {
  const auto length = static_cast<off_t>(size);
  int failed = 0;
  do {
    failed = ::fallocate(fd_.get(), 0, 0, length) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == EOPNOTSUPP || failed == ENOSYS) {
    failed = ::ftruncate(fd_.get(), length) == 0 ? 0 : errno;
  }
  if (failed != 0) throw_errno(failed, ExitStatus::kIoError, "write " + base::quoted(path_));
  direct_ = base::UniqueFd(::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC));
}

void ShardFile::write(std::span<const std::byte> bytes, ByteCount offset) const {
  bool direct = direct_ && is_aligned(bytes, offset);
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(direct ? direct_.get() : fd_.get(), bytes.data(), bytes.size(),
                                 static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && direct) {
      direct = false;
      continue;
    }
    if (put < 0) throw_errno(errno, ExitStatus::kIoError, "write " + base::quoted(path_));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<ByteCount>(put);
    direct = direct && is_aligned(bytes, offset);
  }
}

void ShardFile::sync() const {
  if (::fsync(fd_.get()) != 0) {
    throw_errno(errno, ExitStatus::kIoError, "write " + base::quoted(path_));
  }
}

}  // namespace fo::weights
