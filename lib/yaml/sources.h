// The source text of each document of a file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

/// Splits a text into its documents, in order. Lines are counted from 1.
class Sources {
 public:
  /// `text` must outlive this object.
  explicit Sources(std::string_view text) : rest_(text) {}

  /// Begins a document at the "---" of this line. The first document needs no marker.
  void begin_at_marker(int line);

  /// Returns the document that ends before this line: the comments before its "---", and the text
  /// after it. Behind a "---" line, the result parses to the same document.
  std::string end_before(int line);

  /// Skips the line of a "...".
  void skip_line() { take_line(); }

 private:
  std::string_view take_line();

  std::string_view rest_;
  int line_ = 1;
  std::string current_;
};

struct BlockScalar {
  /// The position of the "|" or ">", or of an anchor or a tag before it.
  Position begin;
  /// The position after the last line of its text.
  Position end;
};

/// Ends the last document of a text with a newline that does not become part of `last_block`, the
/// last block scalar of the text: its "|" becomes "|-", or an unterminated blank line is removed.
void end_with_newline(std::string& source, std::string_view text,
                      const std::optional<BlockScalar>& last_block);

}  // namespace fo::yaml
