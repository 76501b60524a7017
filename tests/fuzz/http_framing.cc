// A conversation between an HTTP client and an engine, in pieces. The derived state must not depend
// on the pieces, nor on whether bodies were read or skipped.
#include "engine/publish/http_framing.h"

#include <string>
#include <tuple>

#include "fuzz.h"

namespace fo::engine {
namespace {

using fuzz::require;

auto state_of(const HttpFraming& framing) {
  return std::tuple(framing.is_between_requests(), framing.is_opaque(),
                    framing.is_in_message(Side::kClient), framing.is_in_message(Side::kEngine),
                    framing.unseen(Side::kClient), framing.unseen(Side::kEngine));
}

void show(HttpFraming& framing, Side side, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t taken = framing.see(side, bytes);
    require(taken > 0 && taken <= bytes.size(), "something is taken, and no more than there is");
    bytes.remove_prefix(taken);
  }
}

void show_unknown(HttpFraming& framing, Side side, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::uint64_t known = std::min<std::uint64_t>(framing.unseen(side), bytes.size());
    if (known > 0) {
      framing.pass(side, known);
      bytes.remove_prefix(known);
    } else {
      bytes.remove_prefix(framing.see(side, bytes));
    }
  }
}

// The bytes of a client that are forwarded contain no refused request, whatever the pieces.
void judge_one(fuzz::Input input) {
  const HttpFraming::Judge judge = [](std::string_view target) {
    return target.size() % 3 == 0 ? 403 : 0;
  };
  HttpFraming framing(judge);
  std::string passed;
  std::string kept;
  while (!input.empty()) {
    const std::string_view bytes = input.text(input.byte() + 1u);
    // Without new bytes, the withheld ones are unchanged.
    if (bytes.empty()) break;
    show(framing, Side::kClient, bytes);
    kept += bytes;
    require(framing.withheld() <= kept.size(), "no more is withheld than was said");
    passed += kept.substr(0, kept.size() - framing.withheld());
    kept = framing.is_over() ? "" : kept.substr(kept.size() - framing.withheld());
  }
  HttpFraming again(judge);
  show(again, Side::kClient, passed);
  require(again.refusal() != 403, "no request passes that is refused");
}

void fuzz_one(fuzz::Input input) {
  judge_one(input);
  HttpFraming whole;
  HttpFraming cut;
  HttpFraming passed_over;
  while (!input.empty()) {
    const std::uint8_t choice = input.byte();
    const Side side = choice % 2 == 0 ? Side::kClient : Side::kEngine;
    const std::string_view bytes = input.text(choice / 2 + 1u);
    show(whole, side, bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) show(cut, side, bytes.substr(i, 1));
    show_unknown(passed_over, side, bytes);
    require(state_of(whole) == state_of(cut), "cutting changes nothing");
    require(state_of(whole) == state_of(passed_over), "passing over changes nothing");
    require(!whole.is_opaque() || !whole.is_between_requests(), "opaque is never between requests");
  }
}

}  // namespace
}  // namespace fo::engine

FO_FUZZER(fo::engine::fuzz_one)
