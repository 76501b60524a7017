// The one exception of this project: what was being done to what, why it failed, and the exit
// status that says so. Thrown where a failure happens, reported once, in cli::run.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "base/exit_status.h"

namespace fo::base {

class Error : public std::runtime_error {
 public:
  /// `what` is the whole message: "what 'object': reason".
  Error(ExitStatus status, const std::string& what) : std::runtime_error(what), status_(status) {}

  /// `what` says what was being done to what; the reason is taken from `code`.
  Error(ExitStatus status, const std::string& what, std::error_code code)
      : std::runtime_error(what + ": " + code.message()), code_(code), status_(status) {}

  [[nodiscard]] ExitStatus status() const noexcept { return status_; }
  [[nodiscard]] const std::error_code& code() const noexcept { return code_; }

 private:
  std::error_code code_;
  ExitStatus status_;
};

/// The exit status that an errno stands for where nothing more is known: EACCES, EPERM, EROFS are
/// kNotPermitted; ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG are kNoInput; ENOSPC, EDQUOT, EIO, EFBIG,
/// EPIPE are kIoError; the rest kOsError.
ExitStatus status_of_errno(int err) noexcept;

/// Throws Error with the reason and the status of `err`.
[[noreturn]] void throw_errno(int err, const std::string& what);

/// Throws Error with the reason of `err` and a status chosen by the caller.
[[noreturn]] void throw_errno(int err, ExitStatus status, const std::string& what);

/// 'text', with control characters and quotes shown as \xNN, cut at 256 bytes: for names in
/// messages.
std::string quoted(std::string_view text);

}  // namespace fo::base
