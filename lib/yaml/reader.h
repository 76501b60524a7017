// YAML and JSON into documents, strictly and within limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "yaml/node.h"

namespace fo::yaml {

struct Document {
  Node root;
  /// As it stands in the file, from behind the line that divides it from the last one to before
  /// the next, with the comments in front of the first; it ends with a newline. Behind a "---" line
  /// it is the document again. With "|-" for the "|" of a text that ends without a newline because
  /// the file does, and with a character for two escapes of JSON that stand for it.
  std::string source;
};

struct ReadLimits {
  /// Of the text, and of the text that aliases stand for.
  std::size_t bytes = std::size_t{16} << 20;
  std::size_t documents = 10'000;
  /// Lists and maps in each other.
  std::size_t depth = 100;
  /// Of all documents, each alias counted with all that it stands for, and what has an anchor once
  /// more.
  std::size_t nodes = 1'000'000;
};

/// Every document that is not empty. Aliases become copies, merge keys ("<<") what they merge.
/// Throws Error(kBadData) "FILE:LINE:COLUMN: reason" for what is no YAML, not UTF-8, a duplicate
/// key, a key that is no scalar, an alias of what contains it, a tag other than those of the core
/// schema, a directive other than %YAML, anything past a limit, and templates of Helm or envsubst
/// that stand where no YAML can.
std::vector<Document> read_yaml(std::string_view text, const std::string& file,
                                const ReadLimits& limits = {});

}  // namespace fo::yaml
