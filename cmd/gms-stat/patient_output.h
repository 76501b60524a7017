// stdout for a program that must handle signals even while its output is not read: a full pipe, a
// stopped terminal.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/unique_fd.h"

namespace fo::gms_stat {

class PatientOutput {
 public:
  PatientOutput();

  /// The descriptor to poll for POLLOUT before write(). A write does not block then, if that is
  /// possible without a change of a file description that other processes share.
  [[nodiscard]] int fd() const { return fd_; }

  /// Returns how many bytes of `text` were written; 0 if there was no room. Throws Error(kIoError).
  [[nodiscard]] std::size_t write(std::string_view text) const;

 private:
  base::UniqueFd own_;
  int fd_;
};

}  // namespace fo::gms_stat
