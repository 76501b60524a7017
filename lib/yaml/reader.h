// A strict parser from YAML and JSON to documents, with limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::yaml {

struct Document {
  Node root;
  /// The document's text in the file: from after its separator line to before the next one,
  /// preceded by the comments before the first; it ends with a newline. Behind a "---" line, this
  /// text parses to the same document. Two changes are possible: "|" becomes "|-" for a block
  /// scalar at the end of a file without a final newline, and two JSON escapes of one character
  /// become the character.
  std::string source;
};

struct ReadLimits {
  /// Maximum bytes of the text, and of the text that aliases expand to.
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t documents = 10'000;
  /// Maximum nesting of lists and maps.
  std::size_t depth = 100;
  /// Maximum number of nodes of all documents. An alias counts with all nodes it expands to, and a
  /// node with an anchor counts twice.
  std::size_t nodes = 1'000'000;
};

/// Returns every document that is not empty. Aliases are expanded to copies, and merge keys ("<<")
/// to the merged members. Throws Error(kBadData) "FILE:LINE:COLUMN: reason" for malformed YAML,
/// bytes that are not UTF-8, a duplicate key, a key that is not a scalar, an alias inside its own
/// anchor, a tag outside the core schema, a directive other than %YAML, a value beyond a limit, and
/// Helm or envsubst templates at places where YAML does not allow them.
std::vector<Document> read_yaml(std::string_view text, const std::string& file,
                                const ReadLimits& limits = {});

}  // namespace fo::yaml
