#include "base/error.h"

#include <cerrno>

namespace fo::base {

ExitStatus status_of_errno(int err) noexcept {
  switch (err) {
    case EACCES:
    case EPERM:
    case EROFS:
      return ExitStatus::kNotPermitted;
    case ENOENT:
    case ENOTDIR:
      return ExitStatus::kNoInput;
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case EFBIG:
    case EPIPE:
      return ExitStatus::kIoError;
    default:
      return ExitStatus::kOsError;
  }
}

void throw_errno(int err, const std::string& what) { throw_errno(err, status_of_errno(err), what); }

void throw_errno(int err, ExitStatus status, const std::string& what) {
  throw Error(status, what, std::error_code(err, std::generic_category()));
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMost = 256;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || c == '\'') {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += text.size() > kMost ? "...'" : "'";
  return out;
}

}  // namespace fo::base
