#include "yaml/sources.h"

#include <algorithm>
#include <utility>

#include "yaml/check.h"

namespace fo::yaml {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// The offset of the "|" or ">" of a block scalar, whose anchor, tag or comments begin at `begin`.
std::size_t find_block_mark(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (text[at] != '|' && text[at] != '>') {
    at = text.find_first_of(text[at] == '#' ? "\n" : kBlanks, at);
    at = text.find_first_not_of(kBlanks, at);
  }
  return at;
}

// Changes the indicators of the block scalar at `mark`, its "|" or ">", so that it has no final
// newline.
void strip(std::string& source, std::size_t mark) {
  const std::size_t end =
      std::min(source.find_first_not_of("0123456789+-", mark + 1), source.size());
  const std::string indicators = source.substr(mark + 1, end - mark - 1);
  if (indicators.find('-') != std::string::npos) return;
  const std::size_t plus = indicators.find('+');
  if (plus != std::string::npos) source.erase(mark + 1 + plus, 1);
  source.insert(mark + 1, 1, '-');
}

}  // namespace

std::string_view Sources::take_line() {
  const std::string_view line = rest_.substr(0, std::min(rest_.find('\n'), rest_.size() - 1) + 1);
  rest_.remove_prefix(line.size());
  ++line_;
  return line;
}

void Sources::begin_at_marker(int line) {
  while (line_ < line) {
    const std::string_view before = take_line();
    if (!before.starts_with('%') && !before.starts_with("...")) current_ += before;
  }
  const std::string_view marker = rest_.substr(0, rest_.find('\n'));
  const std::size_t content = marker.find_first_not_of(kBlanks, 3);
  if (content == std::string_view::npos || marker[content] == '#') {
    take_line();
    return;
  }
  rest_.remove_prefix(content);
  // At the beginning of a line the text would be a marker.
  if (rest_.starts_with("---") || rest_.starts_with("...")) current_ += ' ';
}

std::string Sources::end_before(int line) {
  while (line_ < line && !rest_.empty()) current_ += take_line();
  return std::exchange(current_, {});
}

void end_with_newline(std::string& source, std::string_view text,
                      const std::optional<BlockScalar>& last_block) {
  const std::size_t last_line = text.rfind('\n') + 1;
  if (last_block && last_block->end.column > 1) {
    const std::size_t mark = find_block_mark(text, offset_of(text, last_block->begin));
    strip(source, source.size() - (text.size() - mark));
  } else if (last_block && offset_of(text, last_block->end) == last_line &&
             text.find_first_not_of(' ', last_line) == std::string_view::npos) {
    source.resize(source.size() - (text.size() - last_line));
    return;
  }
  source += '\n';
}

}  // namespace fo::yaml
