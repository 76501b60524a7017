// The code of fmt, compiled once: with its headers alone, each file that formats takes 10 % longer
// to compile. Static tools need a static library, which Debian's package of fmt does not have.
#include <fmt/format-inl.h>

// The headers declare these instantiations `extern`.
FMT_BEGIN_NAMESPACE
namespace detail {
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
