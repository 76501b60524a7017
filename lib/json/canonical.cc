#include "json/canonical.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "json/object.h"

namespace fo::json {
namespace {

using nlohmann::json;

std::u16string to_utf16(std::string_view text) {
  std::u16string units;
  while (!text.empty()) {
    const auto [code, size] = base::first_character(text);
    if (size == 0) throw Misfit("text that is not UTF-8");
    if (code < 0x10000) {
      units += static_cast<char16_t>(code);
    } else {
      units += static_cast<char16_t>(0xd7c0 + (code >> 10));
      units += static_cast<char16_t>(0xdc00 + (code & 0x3ff));
    }
    text.remove_prefix(size);
  }
  return units;
}

// Number::toString of ECMA-262: the value is 0.DIGITS times 10 to the power of `point`.
void write_number(std::string& out, double value) {
  if (!std::isfinite(value)) throw Misfit("a number that is not finite");
  if (value == 0) {
    out += '0';
    return;
  }
  if (value < 0) out += '-';
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.begin(), buffer.end(), std::abs(value), std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::size_t sign = text[e + 1] == '+' ? 1 : 0;  // from_chars takes no "+"
  std::from_chars(text.data() + e + 1 + sign, text.data() + text.size(), exponent);
  const int point = exponent + 1;
  const int count = static_cast<int>(digits.size());
  constexpr int kMaxPoint = 21;
  constexpr int kMinPoint = -5;
  if (point > kMaxPoint || point < kMinPoint) {
    if (count > 1) digits.insert(1, 1, '.');
    out += digits + (exponent < 0 ? "e-" : "e+") + std::to_string(std::abs(exponent));
  } else if (point <= 0) {
    out += "0." + std::string(static_cast<std::size_t>(-point), '0') + digits;
  } else if (point < count) {
    out += digits.insert(static_cast<std::size_t>(point), 1, '.');
  } else {
    out += digits + std::string(static_cast<std::size_t>(point - count), '0');
  }
}

void write(std::string& out, const json& value);

void write_object(std::string& out, const json& object) {
  std::vector<std::pair<std::u16string, json::const_iterator>> members;
  for (auto it = object.begin(); it != object.end(); ++it) {
    members.emplace_back(to_utf16(it.key()), it);
  }
  std::sort(members.begin(), members.end(),
            [](const auto& one, const auto& other) { return one.first < other.first; });
  char before = '{';
  for (const auto& [units, member] : members) {
    out += std::exchange(before, ',');
    out += json(member.key()).dump();
    out += ':';
    write(out, member.value());
  }
  if (members.empty()) out += '{';
  out += '}';
}

void write(std::string& out, const json& value) {
  if (value.is_object()) {
    write_object(out, value);
  } else if (value.is_array()) {
    out += '[';
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i > 0) out += ',';
      write(out, value[i]);
    }
    out += ']';
  } else if (value.is_number()) {
    write_number(out, value.get<double>());
  } else {
    if (value.is_string()) to_utf16(value.get_ref<const std::string&>());  // throws if not UTF-8
    out += value.dump();
  }
}

}  // namespace

std::string canonical(const json& value) {
  std::string out;
  write(out, value);
  return out;
}

}  // namespace fo::json
