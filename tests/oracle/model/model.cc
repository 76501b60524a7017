#include "oracle/model/model.h"

#include <algorithm>

#include "refengine/model/splitmix.h"

namespace fo::oracle {
namespace {

using refengine::kSplitmixStep;
using refengine::splitmix;

// Shares of the kinds of candidates, of 1,024.
constexpr std::uint64_t kShares = 1024;
constexpr std::uint64_t kEndShare = 4;
constexpr std::uint64_t kEmptyShare = 40;
constexpr std::uint64_t kAsciiShare = 60;
// Bytes that begin a character, whose other bytes follow one by one.
constexpr std::uint64_t kLeadShare = 70;
// Any byte, mostly an invalid one.
constexpr std::uint64_t kAnyByteShare = 8;

// One in this many incomplete characters is not completed.
constexpr std::uint64_t kBroken = 32;

// Tokens with a lower rank are always a candidate's duplicates or banned.
constexpr std::uint64_t kMaxRank = 4096;

constexpr double kUnlikely = -20;
// The difference of the logits of two candidates, one of which is the next best.
constexpr double kStep = 1.75;
// The candidates that may be chosen in spite of a bias.
constexpr std::size_t kLikely = 8;

constexpr std::string_view kLeads = "\xC3\xCE\xD0\xE3\xE6\xE7\xF0\xF0";

int sequence_size(unsigned char byte) {
  if (byte >= 0xC2 && byte < 0xE0) return 2;
  if (byte >= 0xE0 && byte < 0xF0) return 3;
  if (byte >= 0xF0 && byte < 0xF5) return 4;
  return 0;
}

// A byte that continues a character (Unicode, table 3-7).
TokenId continuation_byte(unsigned char lead, int has, std::uint64_t bits) {
  if (has == 1 && lead == 0xF0) return static_cast<TokenId>(0x90 + bits % 48);
  if (has == 1 && lead == 0xF4) return static_cast<TokenId>(0x80 + bits % 16);
  if (has == 1 && lead == 0xE0) return static_cast<TokenId>(0xA0 + bits % 32);
  if (has == 1 && lead == 0xED) return static_cast<TokenId>(0x80 + bits % 32);
  return static_cast<TokenId>(0x80 + bits % 64);
}

TokenId any_token(std::uint64_t bits) {
  std::uint64_t share = bits % kShares;
  const std::uint64_t which = bits / kShares;
  const auto falls_in = [&share](std::uint64_t size) {
    const bool falls = share < size;
    share -= size;
    return falls;
  };
  if (falls_in(kEndShare)) return kEnd;
  if (falls_in(kEmptyShare)) return kEmpty;
  if (falls_in(kAsciiShare)) return static_cast<TokenId>(' ' + which % ('~' - ' ' + 1));
  if (falls_in(kLeadShare)) return static_cast<unsigned char>(kLeads[which % kLeads.size()]);
  if (falls_in(kAnyByteShare)) return static_cast<TokenId>(which % kBytes);
  return static_cast<TokenId>(kFirstWord + which % (vocabulary_size() - kFirstWord));
}

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

bool is_selectable(TokenId token, const Selection& selection) {
  return !contains(selection.banned, token) &&
         (selection.allowed.empty() || contains(selection.allowed, token));
}

}  // namespace

ModelState::ModelState(const Weights& weights)
    : hash_(splitmix(weights.seed)), thinking_left_(weights.thinking_tokens) {}

void ModelState::add(TokenId token) {
  hash_ = splitmix(hash_ ^ (token + 1) * kSplitmixStep);
  if (token == kThink) {
    is_thinking_ = true;
  } else if (token == kEndThink) {
    is_thinking_ = false;
  } else if (is_thinking_ && thinking_left_ > 0) {
    --thinking_left_;
  }
  if (is_special(token)) return;
  for (const char c : bytes_of(token)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = needs_ > 0 && (byte & 0xC0) == 0x80;
    if (continues) {
      ++has_;
    } else {
      lead_ = byte;
      needs_ = sequence_size(byte);
      has_ = needs_ > 0 ? 1 : 0;
    }
    if (has_ == needs_) has_ = needs_ = 0;
  }
}

void ModelState::add(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) add(token);
}

TokenId ModelState::candidate(std::uint64_t rank, const Selection& selection) const {
  const std::uint64_t bits = splitmix((hash_ ^ selection.sampling) + rank * kSplitmixStep);
  // After some tries every token is a candidate, since few may be allowed.
  if (rank > kMaxRank / 2) return static_cast<TokenId>(bits % vocabulary_size());
  if (is_thinking_ && thinking_left_ == 0 && rank == 0) return kEndThink;
  if (needs_ > 0 && bits % kBroken != 0) return continuation_byte(lead_, has_, bits / kBroken);
  const TokenId token = any_token(bits);
  return is_thinking_ && token == kEnd ? kEmpty : token;
}

TokenId ModelState::next_with_biases(const Selection& selection) const {
  std::vector<ScoredToken> scored = best(kLikely, selection);
  for (std::size_t i = 0; i < scored.size(); ++i) {
    scored[i].logprob = -kStep * static_cast<double>(i);
  }
  for (const auto& [token, bias] : *selection.biases) {
    const auto found = std::ranges::find(scored, token, &ScoredToken::token);
    if (found != scored.end()) {
      found->logprob += bias;
    } else if (is_selectable(token, selection)) {
      scored.push_back({token, kUnlikely + bias});
    }
  }
  if (scored.empty()) return kEmpty;
  return std::ranges::max_element(scored, {}, &ScoredToken::logprob)->token;
}

TokenId ModelState::next(const Selection& selection) const {
  const bool has_biases = selection.biases != nullptr && !selection.biases->empty();
  if (has_biases) return next_with_biases(selection);
  for (std::uint64_t rank = 0; rank < kMaxRank; ++rank) {
    const TokenId token = candidate(rank, selection);
    if (is_selectable(token, selection)) return token;
  }
  return selection.allowed.empty() ? kEmpty : selection.allowed.front();
}

std::vector<ScoredToken> ModelState::best(std::size_t count, const Selection& selection) const {
  std::vector<ScoredToken> found;
  for (std::uint64_t rank = 0; rank < kMaxRank && found.size() < count; ++rank) {
    const TokenId token = candidate(rank, selection);
    const bool is_known = std::ranges::find(found, token, &ScoredToken::token) != found.end();
    if (is_known || !is_selectable(token, selection)) continue;
    // The best is likely, and far from the second, so that checks can tell them apart.
    const double spread = static_cast<double>((hash_ >> 32) % 1000) / 4000;
    found.push_back({token, -0.05 - spread - kStep * static_cast<double>(found.size())});
  }
  return found;
}

double ModelState::logprob(TokenId token, const Selection& selection) const {
  const std::vector<ScoredToken> likely = best(kLikely, selection);
  const auto found = std::ranges::find(likely, token, &ScoredToken::token);
  return found == likely.end() ? kUnlikely : found->logprob;
}

std::vector<TokenId> continuation(std::span<const TokenId> prompt, std::size_t count,
                                  const Weights& weights) {
  ModelState state(weights);
  state.add(prompt);
  std::vector<TokenId> tokens;
  while (tokens.size() < count && (tokens.empty() || tokens.back() != kEnd)) {
    tokens.push_back(state.next({}));
    state.add(tokens.back());
  }
  return tokens;
}

}  // namespace fo::oracle
