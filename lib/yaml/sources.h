// The bytes of each document of a text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "yaml/node.h"

namespace fo::yaml {

/// Cuts a text into its documents from first to last. Lines are counted from 1.
class Sources {
 public:
  /// `text` has to outlive this.
  explicit Sources(std::string_view text) : rest_(text) {}

  /// A document begins at the "---" of this line. The first document may do without.
  void begin_at_marker(int line);

  /// The document that ends before this line: its bytes behind the "---", after the comments in
  /// front of that. Behind a line "---" they are the document again.
  std::string end_before(int line);

  /// Passes over the line of a "...".
  void skip_line() { take_line(); }

 private:
  std::string_view take_line();

  std::string_view rest_;
  int line_ = 1;
  std::string current_;
};

struct BlockScalar {
  /// Of the "|" or ">", or of an anchor or a tag in front of it.
  Position begin;
  /// Behind the last line of its text.
  Position end;
};

/// Ends the last document of a text with a newline, which becomes no part of `last_block`, the last
/// block scalar of the text: its "|" becomes a "|-", or a blank line without an end goes.
void end_with_newline(std::string& source, std::string_view text,
                      const std::optional<BlockScalar>& last_block);

}  // namespace fo::yaml
