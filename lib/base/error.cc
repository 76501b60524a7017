#include "base/error.h"

#include <cerrno>

#include "base/hex.h"
#include "base/utf8.h"

namespace fo::base {
namespace {

// The length in bytes of the character at the start of `text`; 0 if it must be escaped: a quote, a
// control character (including U+0080 to U+009F), or a byte that is not valid UTF-8.
std::size_t plain_character(std::string_view text) {
  const Character one = first_character(text);
  const bool is_control = one.code < 0x20 || (one.code >= 0x7f && one.code < 0xa0);
  return is_control || one.code == '\'' ? 0 : one.size;
}

}  // namespace

ExitStatus status_of_errno(int err) noexcept {
  switch (err) {
    case EACCES:
    case EPERM:
    case EROFS:
      return ExitStatus::kNotPermitted;
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
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

bool is_exhausted(const std::error_code& code) noexcept {
  using std::errc;
  return code == errc::too_many_files_open || code == errc::too_many_files_open_in_system ||
         code == errc::no_buffer_space || code == errc::not_enough_memory;
}

void throw_errno(int err, const std::string& what) { throw_errno(err, status_of_errno(err), what); }

void throw_errno(int err, ExitStatus status, const std::string& what) {
  throw Error(status, what, std::error_code(err, std::generic_category()));
}

void throw_cannot_create(int err, const std::string& what) {
  const bool denied = status_of_errno(err) == ExitStatus::kNotPermitted;
  throw_errno(err, denied ? ExitStatus::kNotPermitted : ExitStatus::kCannotCreate, what);
}

std::string quoted(std::string_view text) {
  constexpr std::size_t kMax = 256;
  std::string out = "'";
  std::size_t at = 0;
  while (at < text.size() && at < kMax) {
    const std::size_t plain = plain_character(text.substr(at));
    if (at + plain > kMax) break;
    if (plain > 0) {
      out += text.substr(at, plain);
      at += plain;
    } else {
      out += "\\x" + to_hex(std::as_bytes(std::span(text.substr(at++, 1))));
    }
  }
  out += at < text.size() ? "...'" : "'";
  return out;
}

}  // namespace fo::base
