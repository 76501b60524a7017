// Sole owner of a file descriptor. Every descriptor is wrapped when it is created.
#pragma once

#include <unistd.h>

#include <utility>

namespace fo::base {

class UniqueFd {
 public:
  UniqueFd() noexcept = default;
  /// Takes ownership of `fd`; a negative value owns nothing.
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }
  explicit operator bool() const noexcept { return valid(); }

  /// Releases ownership without closing the descriptor.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  /// Closes the owned descriptor, if any, and takes ownership of `fd`. A close that reports EINTR
  /// is not repeated: on Linux the descriptor is closed already.
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace fo::base
