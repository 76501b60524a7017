#include "net/line_buffer.h"

#include <algorithm>

#include "base/error.h"

namespace fo::net {

std::optional<std::string> LineBuffer::take_line() {
  const std::size_t end = bytes_.find('\n');
  if (std::min(end, bytes_.size()) >= max_bytes_) {
    throw base::Error(base::ExitStatus::kProtocol,
                      "read a message: longer than " + std::to_string(max_bytes_) + " bytes");
  }
  if (end == std::string::npos) return std::nullopt;
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  return line;
}

}  // namespace fo::net
