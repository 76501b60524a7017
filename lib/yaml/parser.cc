#include "yaml/parser.h"

#include <fmt/format.h>

#include <new>

#include "yaml/check.h"

namespace fo::yaml {

Position position_of(const yaml_mark_t& mark) {
  return {.line = static_cast<int>(mark.line) + 1, .column = static_cast<int>(mark.column) + 1};
}

Parser::Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {
  if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
  // Without this, a byte order mark could select UTF-16.
  yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
}

Parser::~Parser() {
  yaml_event_delete(&event_);
  yaml_parser_delete(&parser_);
}

const yaml_event_t& Parser::next() {
  yaml_event_delete(&event_);
  if (yaml_parser_parse(&parser_, &event_) == 0) fail();
  if (event_.type == YAML_SCALAR_EVENT) {
    scalar_begin_ = event_.start_mark;
    scalar_end_ = event_.end_mark;
  }
  return event_;
}

void Parser::fail() const {
  if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
  std::string reason = parser_.problem;
  Position position = position_of(parser_.problem_mark);
  const std::size_t line = parser_.problem_mark.line;
  if (reason.ends_with("cannot start any token") &&
      text_.substr(offset_of(text_, position)).starts_with('\t')) {
    reason += " (a tab)";
  }
  if (parser_.context == nullptr) {
    // libyaml reads a key of several lines as a value until it finds the colon.
    if (scalar_begin_.line < line && scalar_end_.line == line && scalar_end_.column > 0) {
      position = position_of(scalar_begin_);
      reason += " behind a scalar of several lines";
    }
  } else if (parser_.context_mark.index < parser_.problem_mark.index) {
    const std::string_view context = parser_.context;
    const Position begin = position_of(parser_.context_mark);
    reason += fmt::format(" {}", context);
    // For these errors libyaml reports the end of the text or of the line.
    if (context.ends_with("scanning a quoted scalar") || context.ends_with("a simple key")) {
      position = begin;
    } else if (begin.line < position.line) {
      reason += fmt::format(" that begins on line {}", begin.line);
    }
  }
  refuse_yaml(file_, position, reason + template_hint(text_, position));
}

}  // namespace fo::yaml
