#include "yaml/printable.h"

namespace fo::yaml {

bool is_printable(char32_t code) {
  constexpr char32_t kLineSeparator = 0x2028;
  constexpr char32_t kParagraphSeparator = 0x2029;
  constexpr char32_t kByteOrderMark = 0xfeff;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return code != kLineSeparator && code != kParagraphSeparator && code != kByteOrderMark &&
         code != 0xfffe && code != 0xffff;
}

}  // namespace fo::yaml
