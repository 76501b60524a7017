#include "yaml/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "yaml/scalar.h"

namespace fo::yaml {
namespace {

constexpr char32_t kByteOrderMark = 0xfeff;

bool is_text(char32_t code) {
  return is_printable(code) || code == '\t' || code == '\n' || code == '\r';
}

// A line end in YAML 1.1, and an ordinary character in YAML 1.2.
bool is_old_line_break(char32_t code) {
  constexpr char32_t kNextLine = 0x85;
  constexpr char32_t kLineSeparator = 0x2028;
  constexpr char32_t kParagraphSeparator = 0x2029;
  return code == kNextLine || code == kLineSeparator || code == kParagraphSeparator;
}

}  // namespace

void refuse_yaml(const std::string& file, Position position, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData,
                    fmt::format("{}:{}:{}: {}", file, position.line, position.column, reason));
}

std::size_t offset_of(std::string_view text, Position position) {
  std::size_t at = 0;
  for (int line = 1; line < position.line && at < text.size(); ++line) {
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
  }
  for (int column = 1; column < position.column && at < text.size(); ++column) {
    if (text[at] == '\n') break;
    at += std::max<std::size_t>(first_character(text.substr(at)).size, 1);
  }
  return at;
}

std::string template_hint(std::string_view text, Position position) {
  // A parser may report the error some characters after the template's beginning.
  constexpr std::size_t kNear = 80;
  const std::size_t line_begin = offset_of(text, {.line = position.line, .column = 1});
  const std::string_view line =
      text.substr(line_begin, text.find_first_of("\r\n", line_begin) - line_begin);
  const std::size_t at = std::min(offset_of(text, position) - line_begin, line.size());
  const std::size_t begin = at - std::min(at, kNear);
  const std::string_view near = line.substr(begin, at + 2 - begin);
  for (const auto& [opens, closes] : {std::pair("{{", "}}"), std::pair("${", "}")}) {
    const std::size_t opened = near.find(opens);
    if (opened == std::string_view::npos) continue;
    if (line.find(closes, begin + opened + 2) == std::string_view::npos) continue;
    return "; a template: run it through helm template or envsubst first";
  }
  return "";
}

void check_yaml(std::string_view text, const std::string& file) {
  Position position{.line = 1, .column = 1};
  const auto refuse = [&](const std::string& reason) { refuse_yaml(file, position, reason); };
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.size == 0) refuse("not UTF-8");
    if (character.code == kByteOrderMark) {
      refuse("a byte order mark that is not at the beginning of the file");
    }
    if (is_old_line_break(character.code)) {
      refuse(fmt::format(
          "a U+{0:04X}, which some parsers read as a line break: write it as \"\\u{0:04x}\"",
          static_cast<std::uint32_t>(character.code)));
    }
    if (!is_text(character.code)) {
      refuse(fmt::format("a control character (U+{:04X})",
                         static_cast<std::uint32_t>(character.code)));
    }
    if (character.code == '\r' && !text.starts_with("\r\n")) {
      refuse("a carriage return without a newline");
    }
    ++position.column;
    if (character.code == '\n') position = {.line = position.line + 1, .column = 1};
    text.remove_prefix(character.size);
  }
}

}  // namespace fo::yaml
