// Bytes in, lines out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fo::net {

class LineBuffer {
 public:
  /// `most_bytes` of a line, the newline included.
  explicit LineBuffer(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void append(std::string_view bytes) { bytes_ += bytes; }
  /// The next line without its newline; nullopt when there is no whole one yet. Throws
  /// Error(kProtocol) when the line is, or is going to be, too long.
  std::optional<std::string> take_line();
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  std::size_t most_bytes_;
  std::string bytes_;
};

}  // namespace fo::net
