// The one exception of this project: it holds the action, the object, the reason and the exit
// status. It is thrown where a failure happens and reported once, in cli::run.
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

  /// `what` names the action and the object; the reason comes from `code`.
  Error(ExitStatus status, const std::string& what, std::error_code code)
      : std::runtime_error(what + ": " + code.message()), code_(code), status_(status) {}

  [[nodiscard]] ExitStatus status() const noexcept { return status_; }
  [[nodiscard]] const std::error_code& code() const noexcept { return code_; }

 private:
  std::error_code code_;
  ExitStatus status_;
};

/// The default exit status for an errno: kNotPermitted for EACCES, EPERM, EROFS; kNoInput for
/// ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG; kIoError for ENOSPC, EDQUOT, EIO, EFBIG, EPIPE; else
/// kOsError.
ExitStatus status_of_errno(int err) noexcept;

/// Whether `code` says that the machine or this process has no descriptor or memory left for a
/// socket. This is transient, and not the fault of a peer.
bool is_exhausted(const std::error_code& code) noexcept;

/// Throws Error with the reason and the status of `err`.
[[noreturn]] void throw_errno(int err, const std::string& what);

/// Throws Error with the reason of `err` and a status chosen by the caller.
[[noreturn]] void throw_errno(int err, ExitStatus status, const std::string& what);

/// Throws Error with the reason of `err` and kNotPermitted for a permission error, else
/// kCannotCreate, for a file, folder or socket that cannot be created.
[[noreturn]] void throw_cannot_create(int err, const std::string& what);

/// `text` in single quotes, for messages. Control characters, quotes and invalid UTF-8 become \xNN.
/// Of a text over 256 bytes, only the beginning is quoted, with "..." at its end.
std::string quoted(std::string_view text);

}  // namespace fo::base
