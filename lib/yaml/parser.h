// Reads the events of one text with libyaml, and explains its errors.
#pragma once

#include <yaml.h>

#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

/// The position of a mark, which counts from 0.
Position position_of(const yaml_mark_t& mark);

class Parser {
 public:
  /// `text` is UTF-8; both arguments must outlive the parser. Throws std::bad_alloc.
  Parser(std::string_view text, const std::string& file);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  /// Returns the next event, valid until the next call; the last one is YAML_STREAM_END_EVENT.
  /// Throws Error(kBadData) "FILE:LINE:COLUMN: reason" for malformed YAML, and std::bad_alloc.
  const yaml_event_t& next();

 private:
  [[noreturn]] void fail() const;

  std::string_view text_;
  const std::string& file_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
  // Position of the last scalar.
  yaml_mark_t scalar_begin_{};
  yaml_mark_t scalar_end_{};
};

}  // namespace fo::yaml
