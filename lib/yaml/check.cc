#include "yaml/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "yaml/printable.h"

namespace fo::yaml {
namespace {

// libfyaml keeps every token of a line, or of brackets that are open, until it knows that none of
// them begins a key: up to 450 bytes for each of these marks, and for quotes with nothing between.
constexpr std::size_t kMostMarks = 1'000'000;
constexpr std::string_view kMarks = "[{,:?-&*!";
// libfyaml goes over the blanks in front again for each of them, in brackets and in scalars of
// several lines: what is limited is the squares of their runs, all together.
constexpr std::size_t kMostBlanks = 16'384;
constexpr std::size_t kMostBlanksSquared = std::size_t{1} << 30;

constexpr char32_t kByteOrderMark = 0xfeff;

bool is_text(char32_t code) {
  return is_printable(code) || code == '\t' || code == '\n' || code == '\r';
}

// Ends a line to YAML 1.1, and is a character like others to YAML 1.2.
bool is_old_line_break(char32_t code) {
  constexpr char32_t kNextLine = 0x85;
  constexpr char32_t kLineSeparator = 0x2028;
  constexpr char32_t kParagraphSeparator = 0x2029;
  return code == kNextLine || code == kLineSeparator || code == kParagraphSeparator;
}

std::string_view line_of(std::string_view text, int line) {
  while (line > 1 && !text.empty()) {
    if (text.front() == '\n') --line;
    text.remove_prefix(1);
  }
  return text.substr(0, text.find_first_of("\r\n"));
}

// "%YAML 1.2" and nothing longer.
bool is_version_directive(std::string_view line) {
  constexpr std::size_t kLongest = 64;
  return line.size() <= kLongest && line.starts_with("%YAML ");
}

}  // namespace

void refuse_yaml(const std::string& file, Position position, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData,
                    fmt::format("{}:{}:{}: {}", file, position.line, position.column, reason));
}

std::string template_hint(std::string_view text, Position position) {
  // A parser may find out some way behind its beginning.
  constexpr std::size_t kNear = 80;
  const std::string_view line = line_of(text, position.line);
  std::size_t at = 0;
  for (int column = 1; column < position.column && at < line.size(); ++column) {
    at += std::max<std::size_t>(first_character(line.substr(at)).size, 1);
  }
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
  std::string_view left = text;
  Position position{.line = 1, .column = 1};
  std::size_t marks = 0;
  std::size_t open = 0;
  std::size_t blanks = 0;
  std::size_t blanks_squared = 0;
  // That was no blank.
  char last = '\n';
  const auto refuse = [&](const std::string& reason) { refuse_yaml(file, position, reason); };
  while (!left.empty()) {
    const Character character = first_character(left);
    const char c = left.front();
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
    if (c == '\r' && !left.starts_with("\r\n")) refuse("a carriage return without a newline");
    if (position.column == 1) {
      if (c == '%' && !is_version_directive(left.substr(0, left.find_first_of("\r\n")))) {
        refuse("a directive: only %YAML is supported");
      }
      if (left.starts_with("---")) {
        open = 0;
        marks = 0;
      }
    }
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    const bool is_quote = c == '"' || c == '\'';
    const bool is_mark =
        kMarks.find(c) != std::string_view::npos || (is_quote && (last == '"' || last == '\''));
    if (is_mark && ++marks > kMostMarks) {
      refuse(fmt::format("more than {} values on a line or in brackets", kMostMarks));
    }
    const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_blank) {
      blanks_squared += blanks * blanks;
      blanks = 0;
      last = c;
    } else if (++blanks > kMostBlanks) {
      refuse(fmt::format("more than {} blanks", kMostBlanks));
    }
    if (blanks_squared > kMostBlanksSquared) refuse("too many blanks in long runs");
    if (c == '\n') {
      ++position.line;
      position.column = 0;
      if (open == 0) marks = 0;
    }
    ++position.column;
    left.remove_prefix(character.size);
  }
}

}  // namespace fo::yaml
