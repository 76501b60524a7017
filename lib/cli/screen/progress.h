// A progress bar on stderr, shown on a terminal only.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/strong.h"

namespace fo::cli {

/// "[#####.....]  50%  1.2 GiB of 2.4 GiB  812 MiB/s", at most `columns` wide; the bar shrinks
/// first.
std::string progress_line(base::ByteCount done, base::ByteCount total,
                          std::chrono::duration<double> elapsed, std::size_t columns);

class Progress {
 public:
  /// Shows nothing if `quiet`, or if stderr is not a terminal.
  explicit Progress(bool quiet);
  /// Removes the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Redraws, at most ten times a second.
  void show(base::ByteCount done, base::ByteCount total);

 private:
  using Clock = std::chrono::steady_clock;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace fo::cli
