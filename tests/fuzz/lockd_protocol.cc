// The lines of the lock protocol: requests, answers, and the splitting of bytes into lines.
#include "lock/lockd/lockd_protocol.h"

#include <vector>

#include "fuzz.h"
#include "net/line_buffer.h"

namespace fo::lock {
namespace {

using base::ExitStatus;
using fuzz::require;
using fuzz::unless_refused;
using net::LineBuffer;

std::string_view without_newline(std::string_view line) {
  require(line.ends_with('\n') && line.find('\n') + 1 == line.size(), "a message is one line");
  return line.substr(0, line.size() - 1);
}

void check_request(std::string_view line) {
  const auto request = unless_refused({ExitStatus::kProtocol, ExitStatus::kConfig},
                                      [&] { return decode_request(line); });
  if (!request) return;
  const std::string again = encode_request(*request);
  require(decode_request(without_newline(again)) == *request, "a request survives");
}

void check_answer(std::string_view line) {
  const auto answer = unless_refused({ExitStatus::kProtocol}, [&] { return decode_answer(line); });
  if (!answer) return;
  const std::string again = encode_answer(*answer);
  require(decode_answer(without_newline(again)) == *answer, "an answer survives");
}

// The lines of `bytes`, which arrive in pieces of `step`, up to the first line that is too long.
std::vector<std::string> lines_of(std::string_view bytes, std::size_t step, std::size_t max_bytes) {
  LineBuffer buffer(max_bytes);
  std::vector<std::string> lines;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(step, bytes.size()))) {
    buffer.append(bytes.substr(0, step));
    for (;;) {
      const auto line = unless_refused({ExitStatus::kProtocol}, [&] { return buffer.take_line(); });
      if (!line) return lines;
      if (!*line) break;
      require((*line)->size() < max_bytes, "a line is short");
      require((*line)->find('\n') == std::string::npos, "a line is one line");
      lines.push_back(**line);
    }
  }
  return lines;
}

void fuzz_one(fuzz::Input input) {
  switch (input.below(3)) {
    case 0:
      check_request(input.rest());
      break;
    case 1:
      check_answer(input.rest());
      break;
    default:
      const std::size_t step = input.below(16) + 1;
      const std::size_t max_bytes = input.below(64) + 1;
      const std::string_view bytes = input.rest();
      require(lines_of(bytes, step, max_bytes) == lines_of(bytes, 1, max_bytes),
              "lines do not depend on how bytes come");
  }
}

}  // namespace
}  // namespace fo::lock

FO_FUZZER(fo::lock::fuzz_one)
