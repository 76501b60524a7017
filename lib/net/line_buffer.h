// A buffer that splits received bytes into lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace fo::net {

class LineBuffer {
 public:
  /// `max_bytes` limits a line, including its newline.
  explicit LineBuffer(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void append(std::string_view bytes) { bytes_ += bytes; }
  /// Returns the next line without its newline; nullopt if it is incomplete. Throws
  /// Error(kProtocol) if the line exceeds the limit, complete or not.
  std::optional<std::string> take_line();
  [[nodiscard]] bool empty() const { return bytes_.empty(); }

 private:
  std::size_t max_bytes_;
  std::string bytes_;
};

}  // namespace fo::net
