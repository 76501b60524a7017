#include "cli/screen/color.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/units.h"
#include "text/ascii.h"

namespace fo::cli {
namespace {

constexpr std::string_view kStart = "\x1b[";

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns the number of codes, from `at` on, that set one colour: 30 to 49 and 90 to 107, of which
// 38 and 48 are followed by "5;N" or "2;R;G;B".
std::size_t colors_at(const std::vector<std::string_view>& codes, std::size_t at) {
  const auto code = base::parse_uint(codes[at]);
  const bool is_color = code && ((*code >= 30 && *code <= 49) || (*code >= 90 && *code <= 107));
  if (!is_color) return 0;
  if ((*code != 38 && *code != 48) || at + 1 == codes.size()) return 1;
  return codes[at + 1] == "5" ? 3 : codes[at + 1] == "2" ? 5 : 1;
}

// "\x1b[CODESm" without the codes that set colours.
std::string sequence(std::string_view text) {
  const std::vector<std::string_view> codes = text::split(text, ';');
  std::string kept;
  bool is_first = true;
  for (std::size_t i = 0; i < codes.size();) {
    if (const std::size_t count = colors_at(codes, i); count > 0) {
      i += count;
      continue;
    }
    if (!is_first) kept += ';';
    kept += codes[i++];
    is_first = false;
  }
  return is_first ? std::string() : std::string(kStart) + kept + "m";
}

}  // namespace

bool is_capable_terminal(int fd) {
  const std::string_view kind = variable("TERM");
  return !kind.empty() && kind != "dumb" && ::isatty(fd) == 1;
}

bool wants_colors(int fd) { return variable("NO_COLOR").empty() && is_capable_terminal(fd); }

std::string without_colors(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t start = text.find(kStart);
    out += text.substr(0, start);
    if (start == std::string_view::npos) break;
    text.remove_prefix(start + kStart.size());
    const std::size_t end = text.find_first_not_of("0123456789;");
    if (end != std::string_view::npos && text[end] == 'm') {
      out += sequence(text.substr(0, end));
      text.remove_prefix(end + 1);
    } else {
      out += kStart;
    }
  }
  return out;
}

}  // namespace fo::cli
