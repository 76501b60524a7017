#include "yaml/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "text/ascii.h"

namespace fo::yaml {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_sign(char c) { return c == '-' || c == '+'; }

// A number as parsed by Go's yaml.v2, which kubectl and Helm use.
struct Number {
  bool is_integer = false;
  // Sign and absolute value of an integer.
  bool negative = false;
  std::uint64_t magnitude = 0;
  // The value of a number that is not an integer.
  double value = 0;
};

// The value of the digits in this base; nullopt if one is invalid or the value is too large.
std::optional<std::uint64_t> magnitude_of(std::string_view digits, unsigned base) {
  if (digits.empty()) return std::nullopt;
  std::uint64_t magnitude = 0;
  for (const char c : digits) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(text::lower(c));
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(magnitude, std::uint64_t{base}, &magnitude) ||
        __builtin_add_overflow(magnitude, std::uint64_t{digit}, &magnitude)) {
      return std::nullopt;
    }
  }
  return magnitude;
}

// Parses "0x1F", "0b11", "0o17", "017" or "17", without a sign.
std::optional<std::uint64_t> unsigned_integer(std::string_view text) {
  if (text.size() < 2 || text.front() != '0') return magnitude_of(text, 10);
  switch (text[1]) {
    case 'x':
    case 'X':
      return magnitude_of(text.substr(2), 16);
    case 'o':
    case 'O':
      return magnitude_of(text.substr(2), 8);
    case 'b':
    case 'B':
      return magnitude_of(text.substr(2), 2);
    default:
      return magnitude_of(text.substr(1), 8);
  }
}

std::string_view without_sign(std::string_view text) {
  return text.substr(!text.empty() && is_sign(text.front()) ? 1 : 0);
}

// Removes the digits at the front of `text` and returns their number.
std::size_t take_digits(std::string_view& text, std::string_view digits = kDigits) {
  const std::size_t count = std::min(text.find_first_not_of(digits), text.size());
  text.remove_prefix(count);
  return count;
}

bool take(std::string_view& text, std::string_view one_of) {
  if (text.empty() || one_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// Whether the text is "1.", ".5", "1.5e-3" or "1e3", with or without a sign.
bool is_decimal_float(std::string_view text) {
  text = without_sign(text);
  const std::size_t before = take_digits(text);
  const bool has_point = take(text, ".");
  const std::size_t behind = has_point ? take_digits(text) : 0;
  if (before + behind == 0) return false;
  if (take(text, "eE")) {
    take(text, "+-");
    if (take_digits(text) == 0) return false;
  }
  return text.empty();
}

std::optional<double> decimal_float(const std::string& text) {
  if (!is_decimal_float(text)) return std::nullopt;
  const double value = std::strtod(text.c_str(), nullptr);
  if (std::isinf(value)) return std::nullopt;
  return value;
}

std::optional<Number> number_of(std::string_view text) {
  if (text.empty()) return std::nullopt;
  Number number;
  // A number that begins with a point must not contain underscores.
  std::string plain(text);
  if (text.front() != '.') {
    if (!text::is_digit(text.front()) && !is_sign(text.front())) return std::nullopt;
    std::erase(plain, '_');
    constexpr std::uint64_t kMaxNegative = std::uint64_t{1} << 63;
    const std::optional<std::uint64_t> magnitude = unsigned_integer(without_sign(plain));
    number.negative = plain.front() == '-';
    // Go's parser accepts a signed 64-bit number, or an unsigned one without a sign.
    const bool is_signed = is_sign(plain.front());
    const std::uint64_t max = number.negative ? kMaxNegative
                              : is_signed     ? kMaxNegative - 1
                                              : std::numeric_limits<std::uint64_t>::max();
    if (magnitude && *magnitude <= max) {
      number.is_integer = true;
      number.magnitude = *magnitude;
      return number;
    }
  }
  const std::optional<double> value = decimal_float(plain);
  if (!value) return std::nullopt;
  number.value = *value;
  return number;
}

std::optional<bool> boolean_of(std::string_view text) {
  constexpr std::array<std::string_view, 11> kTrue = {"y",    "Y",    "yes", "Yes", "YES", "true",
                                                      "True", "TRUE", "on",  "On",  "ON"};
  constexpr std::array<std::string_view, 11> kFalse = {
      "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"};
  if (text::is_one_of(text, kTrue)) return true;
  if (text::is_one_of(text, kFalse)) return false;
  return std::nullopt;
}

bool is_infinity_or_nan(std::string_view text) {
  constexpr std::array<std::string_view, 3> kInfinity = {".inf", ".Inf", ".INF"};
  constexpr std::array<std::string_view, 3> kNan = {".nan", ".NaN", ".NAN"};
  return text::is_one_of(without_sign(text), kInfinity) || text::is_one_of(text, kNan);
}

// Removes one or two digits, as in a month, a day or an hour.
bool take_one_or_two(std::string_view& text) {
  const std::size_t before = text.size();
  take_digits(text);
  return before - text.size() == 1 || before - text.size() == 2;
}

// Whether the text is a date, "2001-12-14", possibly followed by a time of day.
bool is_date(std::string_view text) {
  if (take_digits(text) != 4 || !take(text, "-") || !take_one_or_two(text) || !take(text, "-") ||
      !take_one_or_two(text)) {
    return false;
  }
  if (text.empty()) return true;
  if (!take(text, "Tt \t")) return false;
  while (take(text, " \t")) {
  }
  return take_one_or_two(text) && take(text, ":") && take_one_or_two(text) && take(text, ":") &&
         take_one_or_two(text);
}

// Whether any reader might read the text as a number, including forms that Go does not accept:
// 12:30:45 in base 60, 1e400, 08, 0x, 1_, and e5, which JavaScript reads as NaN.
bool looks_like_number(std::string_view text) {
  text = without_sign(text);
  constexpr std::string_view kLoose = "0123456789_";
  if (text.size() >= 2 && text.front() == '0' &&
      std::string_view("xXoObB").find(text[1]) != std::string_view::npos) {
    text.remove_prefix(2);
    take_digits(text, "0123456789abcdefABCDEF_");
    return text.empty();
  }
  if (text.starts_with('_')) return false;
  const std::size_t before = take_digits(text, kLoose);
  if (before > 0) {
    while (take(text, ":")) {
      if (take_digits(text, kLoose) == 0) return false;
    }
  }
  const bool has_point = take(text, ".");
  take_digits(text, kLoose);
  bool has_digits = before > 0 || has_point;
  if (take(text, "eE")) {
    take(text, "+-");
    has_digits = take_digits(text, kLoose) > 0 || has_digits;
  }
  return has_digits && text.empty();
}

// Whether some reader reads the text as a word of another type, such as a boolean. Case is ignored,
// as some readers do.
bool looks_like_word(std::string_view text) {
  constexpr std::array<std::string_view, 12> kWords = {"",   "~",  "null", "y",    "n",     "yes",
                                                       "no", "on", "off",  "true", "false", "="};
  constexpr std::array<std::string_view, 2> kFloats = {".inf", ".nan"};
  if (text.size() > 5) return false;
  const std::string word = text::lower(text);
  return text::is_one_of(word, kWords) || text::is_one_of(without_sign(word), kFloats);
}

std::string json_of(const Number& number) {
  // A negative zero is written without its sign, because "-0" would be an integer, and integers
  // have no negative zero.
  if (!number.is_integer) return fmt::format("{}", number.value == 0 ? 0.0 : number.value);
  return (number.negative && number.magnitude > 0 ? "-" : "") + std::to_string(number.magnitude);
}

}  // namespace

bool is_printable(char32_t code) {
  constexpr char32_t kLineSeparator = 0x2028;
  constexpr char32_t kParagraphSeparator = 0x2029;
  constexpr char32_t kByteOrderMark = 0xfeff;
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return code != kLineSeparator && code != kParagraphSeparator && code != kByteOrderMark &&
         code != 0xfffe && code != 0xffff;
}

ScalarType type_of(std::string_view plain_text) {
  constexpr std::array<std::string_view, 5> kNulls = {"", "~", "null", "Null", "NULL"};
  if (text::is_one_of(plain_text, kNulls)) return ScalarType::kNull;
  if (boolean_of(plain_text)) return ScalarType::kBoolean;
  if (plain_text == "<<") return ScalarType::kMerge;
  if (is_infinity_or_nan(plain_text)) return ScalarType::kFloat;
  if (is_date(plain_text)) return ScalarType::kTimestamp;
  const std::optional<Number> number = number_of(plain_text);
  if (!number) return ScalarType::kString;
  return number->is_integer ? ScalarType::kInteger : ScalarType::kFloat;
}

bool can_be_plain(std::string_view text) {
  constexpr std::string_view kNeverFirst = ",[]{}#&*!|>'\"%@`:?";
  if (text.empty() || kNeverFirst.find(text.front()) != std::string_view::npos) return false;
  if (text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (text == "-" || text.starts_with("- ")) return false;
  if (text.starts_with("---") || text.starts_with("...")) return false;
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos) {
    return false;
  }
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.size == 0 || !is_printable(character.code)) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

bool needs_quotes(std::string_view text) {
  return !can_be_plain(text) || looks_like_word(text) || looks_like_number(text) ||
         type_of(text) != ScalarType::kString;
}

std::string double_quoted(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  std::string out = "\"";
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::size_t escaped = kEscaped.find(text.front());
    if (escaped != std::string_view::npos) {
      out += '\\';
      out += kLetters[escaped];
    } else if (character.size == 0) {
      out += "\\ufffd";
    } else if (is_printable(character.code)) {
      out += text.substr(0, character.size);
    } else {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character.code));
    }
    text.remove_prefix(std::max<std::size_t>(character.size, 1));
  }
  return out + '"';
}

std::optional<std::string> as_string(const Node& node) {
  if (!node.is_scalar()) return std::nullopt;
  if (node.is_plain()) {
    switch (type_of(node.text())) {
      case ScalarType::kNull:
      case ScalarType::kBoolean:
      case ScalarType::kInteger:
      case ScalarType::kFloat:
        return std::nullopt;
      case ScalarType::kTimestamp:
      case ScalarType::kMerge:
      case ScalarType::kString:
        break;
    }
  }
  return node.text();
}

std::optional<std::int64_t> as_integer(const Node& node, Quoted quoted) {
  if (!node.is_scalar() || (!node.is_plain() && quoted == Quoted::kNo)) return std::nullopt;
  std::string text = node.text();
  // A quoted number is a Kubernetes quantity: "010" is ten, and "0x1" is invalid.
  if (!node.is_plain()) {
    if (text.find_first_not_of("0123456789+-.eE") != std::string::npos) return std::nullopt;
    const std::size_t sign = !text.empty() && is_sign(text.front()) ? 1 : 0;
    std::size_t digits = sign;
    while (digits + 1 < text.size() && text[digits] == '0' && text::is_digit(text[digits + 1]))
      ++digits;
    text.erase(sign, digits - sign);
  }
  const std::optional<Number> number = number_of(text);
  if (!number) return std::nullopt;
  if (!number->is_integer) {
    // 2^63 is the first double that exceeds the range of 64-bit integers.
    constexpr double kEnd = 9223372036854775808.0;
    const double value = number->value;
    if (value != std::trunc(value) || value < -kEnd || value >= kEnd) return std::nullopt;
    return static_cast<std::int64_t>(value);
  }
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (number->magnitude > kMax + (number->negative ? 1 : 0)) return std::nullopt;
  const std::uint64_t bits = number->negative ? 0 - number->magnitude : number->magnitude;
  return static_cast<std::int64_t>(bits);
}

std::optional<bool> as_boolean(const Node& node) {
  if (!node.is_scalar() || !node.is_plain()) return std::nullopt;
  return boolean_of(node.text());
}

std::string to_json_scalar(const Node& node) {
  if (node.is_null()) return "null";
  if (const std::optional<bool> boolean = as_boolean(node)) return *boolean ? "true" : "false";
  if (node.is_plain() && !is_date(node.text())) {
    if (const std::optional<Number> number = number_of(node.text())) return json_of(*number);
  }
  return double_quoted(node.text());
}

std::string to_json_key(const Node::Member& member) {
  if (!member.plain_key || type_of(member.key) == ScalarType::kString) {
    return double_quoted(member.key);
  }
  const std::string json = to_json_scalar(Node::plain(member.key));
  return json.starts_with('"') ? json : '"' + json + '"';
}

}  // namespace fo::yaml
