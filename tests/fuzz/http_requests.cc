// A client's bytes for a server, in pieces: one request after another. The parsed requests must not
// depend on the pieces, nor the refusal that ends them, which may need more bytes in one case.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "fuzz.h"
#include "http/message_reader.h"

namespace fo::http {
namespace {

using fuzz::require;
using Step = RequestReader::Step;

struct Requests {
  struct One {
    std::string method;
    std::string target;
    Fields headers;
    std::string body;
    bool keeps_alive = false;
    friend bool operator==(const One&, const One&) = default;
  };
  std::vector<One> read;
  int refusal = 0;
};

bool are_same(const Requests& one, const Requests& other) {
  const bool are_refused = one.refusal != 0 && other.refusal != 0;
  return one.read == other.read && (!are_refused || one.refusal == other.refusal);
}

// The requests in `stream`, which arrives in pieces of `room` bytes.
Requests read(std::string_view stream, std::size_t room) {
  const RequestReader::Limits limits{.head_bytes = 1000, .body_bytes = 300};
  RequestReader reader(limits);
  Requests requests;
  const auto fill = [&] {
    const std::span<char> space = reader.prepare();
    const std::size_t count = std::min({room, space.size(), stream.size()});
    std::copy_n(stream.data(), count, space.data());
    stream.remove_prefix(count);
    reader.commit(count);
    return count > 0;
  };
  for (;;) {
    reader.begin();
    for (const auto part : {&RequestReader::read_head, &RequestReader::read_body}) {
      Step step = (reader.*part)();
      while (step == Step::kNeedsMore && fill()) step = (reader.*part)();
      if (step == Step::kNeedsMore) return requests;
      if (step == Step::kDone) continue;
      requests.refusal = reader.refusal_status();
      require(requests.refusal >= 400 && requests.refusal < 600, "the refusal is an error");
      require(!reader.refusal().empty(), "the refusal has a reason");
      return requests;
    }
    const bool keeps_alive = reader.keeps_alive();
    Request request = reader.take();
    require(request.body.size() <= limits.body_bytes, "the body has a limit");
    require(!request.method.empty() && base::is_graphic(request.target), "a line has its parts");
    std::size_t lengths = 0;
    for (const auto& [name, value] : request.headers) {
      require(is_valid_field(name, value), "the fields can be sent on");
      lengths += base::equal_ignoring_case(name, "content-length") ||
                 base::equal_ignoring_case(name, "transfer-encoding");
    }
    require(lengths <= 1, "a body has one length");
    requests.read.push_back({std::move(request.method), std::move(request.target),
                             std::move(request.headers), std::move(request.body), keeps_alive});
    if (!keeps_alive) return requests;
  }
}

void fuzz_one(fuzz::Input input) {
  const std::size_t room = input.byte() + 1u;
  const std::string_view stream = input.rest();
  const Requests whole = read(stream, stream.size() + 1);
  require(are_same(whole, read(stream, 1)), "cutting into bytes changes nothing");
  require(are_same(whole, read(stream, room)), "cutting changes nothing");
}

}  // namespace
}  // namespace fo::http

FO_FUZZER(fo::http::fuzz_one)
