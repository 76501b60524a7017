// A client's bytes for a server, in pieces: one request after another. The requests that are read
// must not depend on the pieces. Why and when the reader refuses the rest may.
#include <algorithm>
#include <set>
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

struct One {
  std::string method;
  std::string target;
  Fields headers;
  std::string body;
  bool keeps_alive = false;
  friend bool operator==(const One&, const One&) = default;
};

// The requests in `stream`, which arrives in pieces of `room` bytes.
std::vector<One> read(std::string_view stream, std::size_t room) {
  // No head reaches the limit, which a head that arrives in one piece may exceed by that piece.
  const RequestReader::Limits limits{.head_bytes = 64 * 1024, .body_bytes = 300};
  RequestReader reader(limits);
  std::vector<One> requests;
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
      const int refusal = reader.refusal_status();
      require(refusal >= 400 && refusal < 600, "the refusal is an error");
      require(!reader.refusal().empty(), "the refusal has a reason");
      return requests;
    }
    const bool keeps_alive = reader.keeps_alive();
    Request request = reader.take();
    require(request.body.size() <= limits.body_bytes, "the body has a limit");
    const bool has_space = std::any_of(request.target.begin(), request.target.end(), [](char c) {
      return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
    });
    require(!request.method.empty() && !has_space, "a line has its parts");
    std::set<std::string> lengths;
    for (const auto& [name, value] : request.headers) {
      require(is_valid_field(name, value), "the fields can be sent on");
      if (base::equal_ignoring_case(name, "content-length")) lengths.insert(value);
      if (base::equal_ignoring_case(name, "transfer-encoding")) lengths.insert("of its chunks");
    }
    // The same length twice is one (RFC 9110, section 8.6).
    require(lengths.size() <= 1, "a body has one length");
    requests.push_back({std::move(request.method), std::move(request.target),
                        std::move(request.headers), std::move(request.body), keeps_alive});
    if (!keeps_alive) return requests;
  }
}

void fuzz_one(fuzz::Input input) {
  const std::size_t room = input.byte() + 1u;
  const std::string_view stream = input.rest();
  const std::vector<One> whole = read(stream, stream.size() + 1);
  require(whole == read(stream, 1), "cutting into bytes changes nothing");
  require(whole == read(stream, room), "cutting changes nothing");
}

}  // namespace
}  // namespace fo::http

FO_FUZZER(fo::http::fuzz_one)
