// The code of fmt, compiled once: with its headers alone, each file that formats takes 10 % longer.
// Debian has no static library of it, which static tools need.
#include <fmt/format-inl.h>

// The headers promise these.
FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
