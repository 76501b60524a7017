// stdout for a program that must hear its signals also while nobody reads what it prints: a pipe
// that is full, a terminal that was stopped.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/unique_fd.h"

namespace fo::gms_stat {

class PatientOutput {
 public:
  PatientOutput();

  /// To be polled: POLLOUT before write(). It does not block where that can be had without a change
  /// to the descriptor that other processes share.
  [[nodiscard]] int fd() const { return fd_; }

  /// How much of `text` it took; 0 when there is no room after all. Throws Error(kIoError).
  [[nodiscard]] std::size_t write(std::string_view text) const;

 private:
  base::UniqueFd own_;
  int fd_;
};

}  // namespace fo::gms_stat
