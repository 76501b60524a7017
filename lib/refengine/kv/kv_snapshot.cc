#include "refengine/kv/kv_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "gms/protocol/sha256.h"
#include "json/object.h"

namespace fo::refengine {
namespace {

using base::Error;
using base::ExitStatus;
using nlohmann::json;

// Version of the stream and of the layout of keys and values.
constexpr const char* kFormat = "fo-kv-1";
constexpr base::ByteCount kMaxOfferBytes = 16 * base::kMiB;

[[noreturn]] void fail(const std::string& reason) {
  throw Error(ExitStatus::kProtocol, "read a KV cache: " + reason);
}

// The checksum of block `index`, which follows a block with the checksum `last`.
std::string checksum_of(const std::string& last, const KvOffer& offer, std::size_t index,
                        std::string_view bytes) {
  const auto tokens = std::span(offer.tokens)
                          .subspan(index * kBlockTokens)
                          .first(tokens_in_block(offer.tokens.size(), index));
  gms::Sha256 hash;
  hash.add(std::as_bytes(std::span(last)));
  hash.add(std::as_bytes(tokens));
  hash.add(std::as_bytes(std::span(bytes)));
  return hash.finish();
}

std::string head_of(std::size_t index, std::size_t bytes, const std::string& checksum) {
  return fmt::format("{:08x} {:08x} {}\n", index, bytes, checksum);
}

}  // namespace

std::size_t KvOffer::blocks() const { return (tokens.size() + kBlockTokens - 1) / kBlockTokens; }

base::ByteCount KvOffer::bytes() const { return tokens.size() * identity.bytes_per_token; }

std::size_t tokens_in_block(std::size_t tokens, std::size_t index) {
  return std::min(tokens - index * kBlockTokens, kBlockTokens);
}

std::string format_offer(const KvOffer& offer) {
  return fo::json::dump({{"format", kFormat},
                         {"model", offer.identity.model},
                         {"fingerprint", offer.identity.fingerprint},
                         {"bytes_per_token", offer.identity.bytes_per_token},
                         {"block_tokens", kBlockTokens},
                         {"blocks", offer.blocks()},
                         {"bytes", offer.bytes()},
                         {"tokens", offer.tokens}});
}

KvOffer parse_offer(std::string_view text) {
  const auto read = [](const json& object) {
    if (object.at("format") != kFormat || object.at("block_tokens") != kBlockTokens) {
      fail("unknown format");
    }
    KvOffer offer;
    offer.identity = {object.at("model"), object.at("fingerprint"), object.at("bytes_per_token")};
    for (const json& token : object.at("tokens")) {
      if (!token.is_number_unsigned()) fail("a token is not a number");
      offer.tokens.push_back(token.get<TokenId>());
    }
    if (offer.tokens.empty()) fail("no tokens");
    return offer;
  };
  return fo::json::read_object(
      text, kMaxOfferBytes, [] { return "read the offer of a KV cache"; }, read);
}

base::ByteCount stream_bytes(const KvOffer& offer) {
  return offer.bytes() + offer.blocks() * kBlockHeadBytes;
}

std::string BlockWriter::write(std::string_view bytes) {
  last_ = checksum_of(last_, offer_, index_, bytes);
  return head_of(index_++, bytes.size(), last_).append(bytes);
}

std::size_t BlockReader::block_bytes() const {
  return tokens_in_block(offer_.tokens.size(), blocks_.size()) * offer_.identity.bytes_per_token;
}

void BlockReader::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (blocks_.size() == offer_.blocks()) fail("bytes after its last block");
    const std::size_t wanted = kBlockHeadBytes + block_bytes() - pending_.size();
    const std::string_view piece = bytes.substr(0, wanted);
    pending_ += piece;
    bytes.remove_prefix(piece.size());
    if (piece.size() == wanted) take_block();
  }
}

void BlockReader::take_block() {
  const std::string_view bytes = std::string_view(pending_).substr(kBlockHeadBytes);
  const std::size_t index = blocks_.size();
  last_ = checksum_of(last_, offer_, index, bytes);
  if (!pending_.starts_with(head_of(index, bytes.size(), last_))) {
    fail("block " + std::to_string(index) + " does not match its checksum");
  }
  blocks_.emplace_back(bytes);
  pending_.clear();
}

std::vector<std::string> BlockReader::finish() {
  if (blocks_.size() < offer_.blocks()) fail("truncated");
  return std::move(blocks_);
}

}  // namespace fo::refengine
