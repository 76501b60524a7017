#include "route/request/form.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/ascii.h"

namespace fo::route {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";

[[noreturn]] void refuse(const char* reason) {
  throw base::Error(base::ExitStatus::kBadData, std::string("multipart form: ") + reason);
}

std::string without_blanks(std::string_view text) {
  std::string result = text::lower(text);
  std::erase_if(result, [](char c) { return c == ' ' || c == '\t'; });
  return result;
}

// The value of the parameter `name` in a header such as "form-data; name=model"; nullopt if it has
// none.
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  std::optional<std::string> found;
  const auto refuse_it = [] { refuse("expected plain parameters in its headers"); };
  while (!header.empty()) {
    const std::size_t semicolon = std::min(header.find(';'), header.size());
    const std::size_t quote = header.find('"');
    std::size_t end = semicolon;
    if (quote < semicolon) {
      const std::size_t closing = header.find('"', quote + 1);
      if (closing == header.npos) refuse_it();
      end = std::min(header.find(';', closing), header.size());
      if (header.substr(quote, end - quote).find('\\') != header.npos) refuse_it();
    }
    std::string_view one = text::trimmed(header.substr(0, end));
    header.remove_prefix(std::min(end + 1, header.size()));
    const std::size_t equals = one.find('=');
    if (equals == one.npos) continue;
    const std::string key = without_blanks(one.substr(0, equals));
    // An encoded or divided name (RFC 2231), such as "name*", could be the same one.
    if (key.starts_with(name) && key != name && !text::is_letter_or_digit(key[name.size()]))
      refuse_it();
    if (key != name) continue;
    if (found) refuse_it();
    std::string_view value = text::trimmed(one.substr(equals + 1));
    const bool is_quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    if (is_quoted) value = value.substr(1, value.size() - 2);
    if (value.find('"') != value.npos) refuse_it();
    found = value;
  }
  return found;
}

std::string boundary_of(std::string_view type) {
  constexpr std::size_t kMaxBoundary = 70;
  constexpr std::string_view kMarks = "'()+_,-./:=?";
  const std::optional<std::string> boundary = parameter(type, "boundary");
  const bool is_valid = boundary && !boundary->empty() && boundary->size() <= kMaxBoundary &&
                        std::ranges::all_of(*boundary, [&](char c) {
                          return text::is_letter_or_digit(c) || kMarks.find(c) != kMarks.npos;
                        });
  if (!is_valid) refuse("content-type: expected a boundary");
  return *boundary;
}

// The name in the head of a part: its lines, without the empty one at its end.
std::string name_of(std::string_view head) {
  std::optional<std::string> name;
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find(kLineEnd));
    head.remove_prefix(std::min(line.size() + kLineEnd.size(), head.size()));
    // Folded lines, and line ends that only some parsers accept.
    const bool is_plain = !line.empty() && line.front() != ' ' && line.front() != '\t' &&
                          line.find_first_of(kLineEnd) == line.npos;
    if (!is_plain) refuse("expected plain headers of its parts");
    const std::size_t colon = line.find(':');
    if (colon == line.npos || text::lower(line.substr(0, colon)) != "content-disposition") continue;
    if (name) refuse("a part has two names");
    name = parameter(line.substr(colon + 1), "name");
    if (!name) refuse("a part has no name");
  }
  if (!name) refuse("a part has no name");
  return text::lower(*name);
}

}  // namespace

std::vector<FormField> read_form(std::string_view type, std::string_view body) {
  const std::string delimiter = "\r\n--" + boundary_of(type);
  std::vector<FormField> fields;
  if (body.empty()) return fields;
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  if (!body.starts_with(first)) refuse("expected the boundary at the beginning");
  body.remove_prefix(first.size());
  while (!body.starts_with("--")) {
    if (!body.starts_with(kLineEnd)) refuse("expected a line end after its boundary");
    body.remove_prefix(kLineEnd.size());
    const std::size_t end = body.find(delimiter);
    if (end == body.npos) refuse("missing closing boundary");
    const std::string_view part = body.substr(0, end);
    const std::size_t head_end = part.find(kHeadEnd);
    if (head_end == part.npos) refuse("a part has no headers");
    fields.push_back({name_of(part.substr(0, head_end)), part.substr(head_end + kHeadEnd.size())});
    body.remove_prefix(end + delimiter.size());
  }
  return fields;
}

}  // namespace fo::route
