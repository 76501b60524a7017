// A server's bytes for a client that sends one request after another, in pieces. The parsed answers
// must not depend on the pieces, nor on the size of the body's buffer.
#include <string>
#include <vector>

#include "fuzz.h"
#include "http/message_reader.h"

namespace fo::http {
namespace {

using fuzz::require;

struct Answer {
  int status = 0;
  Fields headers;
  std::string body;
  bool is_complete = false;
  friend bool operator==(const Answer&, const Answer&) = default;
};

// All answers in `stream`, which arrives in pieces of `room` bytes.
std::vector<Answer> read(std::string_view stream, std::size_t room, std::size_t space_size) {
  ResponseReader::Limits limits;
  limits.head_bytes = 1000;
  limits.fields = 20;
  ResponseReader reader(limits);
  std::vector<Answer> answers;
  const auto fill = [&] {
    const std::span<char> space = reader.prepare();
    const std::size_t count = std::min({room, space.size(), stream.size()});
    std::copy_n(stream.data(), count, space.data());
    stream.remove_prefix(count);
    reader.commit(count);
    if (count == 0) reader.end();
  };
  fuzz::unless_refused({base::ExitStatus::kProtocol, base::ExitStatus::kUnavailable}, [&] {
    for (bool more = true; more;) {
      std::optional<ResponseHead> head;
      while (!(head = reader.read_head())) fill();
      require(head->status >= 200 && head->status < 1000, "the status has three digits");
      require(head->headers.size() <= limits.fields, "fields have a limit");
      for (const auto& [name, value] : head->headers) {
        require(is_valid_field(name, value), "the fields can be sent on");
      }
      answers.push_back({head->status, head->headers, "", false});
      Answer& answer = answers.back();
      std::vector<char> space(space_size);
      for (;;) {
        const std::optional<std::size_t> count = reader.read_body(space);
        require(!count || *count <= space.size(), "no more than there is room for");
        if (!count) {
          fill();
          continue;
        }
        if (*count == 0) break;
        answer.body.append(space.data(), *count);
      }
      require(reader.is_complete(), "the body has come to its end");
      answer.is_complete = true;
      // keeps_alive() depends on bytes after the answer, so it is queried only when all have
      // arrived.
      more = !stream.empty() && reader.keeps_alive();
      if (more) reader.begin(false);
    }
    return true;
  });
  return answers;
}

void fuzz_one(fuzz::Input input) {
  const std::size_t room = input.byte() + 1u;
  const std::size_t space = input.below(100) + 1;
  const std::string_view stream = input.rest();
  const std::vector<Answer> whole = read(stream, stream.size() + 1, 10000);
  const std::vector<Answer> by_bytes = read(stream, 1, 1);
  const std::vector<Answer> cut = read(stream, room, space);
  // If the server sends too much, the rest may be a second answer when the pieces are small.
  if (whole.empty() || by_bytes.empty() || cut.empty()) {
    require(whole.empty() == by_bytes.empty() && whole.empty() == cut.empty(), "all see an answer");
    return;
  }
  require(whole.front() == by_bytes.front(), "cutting changes nothing");
  require(whole.front() == cut.front(), "room changes nothing");
}

}  // namespace
}  // namespace fo::http

FO_FUZZER(fo::http::fuzz_one)
