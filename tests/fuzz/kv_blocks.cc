// What an engine sends of a KV cache: the offer, and the stream of its blocks. The first byte
// selects one.
#include "fuzz.h"
#include "refengine/kv/kv_snapshot.h"

namespace fo::refengine {
namespace {

using base::ExitStatus;
using fuzz::require;

void check_offer(std::string_view text) {
  const auto offer =
      fuzz::unless_refused({ExitStatus::kProtocol}, [&] { return parse_offer(text); });
  if (!offer) return;
  require(offer->blocks() > 0, "an offer has a block");
  const KvOffer again = parse_offer(format_offer(*offer));
  require(again.identity == offer->identity && again.tokens == offer->tokens,
          "an offer survives the way");
}

KvOffer small_offer() {
  KvOffer offer;
  offer.identity = {"m", "f00d", 1};
  offer.tokens.resize(kBlockTokens + 1);
  return offer;
}

std::string right_stream(const KvOffer& offer) {
  BlockWriter writer(offer);
  return writer.write(std::string(kBlockTokens, 'a')) + writer.write("b");
}

// Replaces some bytes of a right stream, and sends it in pieces.
void check_stream(fuzz::Input input) {
  static const KvOffer offer = small_offer();
  static const std::string right = right_stream(offer);
  std::string stream = right;
  for (std::size_t count = input.below(4); count > 0; --count) {
    stream[input.byte() % stream.size()] = static_cast<char>(input.byte());
  }
  const std::size_t size = 1 + input.below(stream.size());
  stream += input.rest();
  const auto blocks = fuzz::unless_refused({ExitStatus::kProtocol}, [&] {
    BlockReader reader(offer);
    for (std::size_t at = 0; at < stream.size(); at += size) {
      reader.add(std::string_view(stream).substr(at, size));
    }
    return reader.finish();
  });
  require(blocks.has_value() == (stream == right), "only the right stream is accepted");
}

void fuzz_one(fuzz::Input input) {
  if (input.below(2) == 0) return check_offer(input.rest());
  check_stream(input);
}

}  // namespace
}  // namespace fo::refengine

FO_FUZZER(fo::refengine::fuzz_one)
