#include "refengine/kv/kv_snapshot.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/failure.h"

namespace fo::refengine {
namespace {

using base::ExitStatus;
using test::failure_of;
using test::status_of;

KvOffer offer_of(std::size_t tokens) {
  KvOffer offer;
  offer.identity = {"m", "f00d", 3};
  offer.tokens.resize(tokens);
  std::iota(offer.tokens.begin(), offer.tokens.end(), TokenId{5});
  return offer;
}

// The keys and values of block `index`.
std::string bytes_of_block(const KvOffer& offer, std::size_t index) {
  return std::string(tokens_in_block(offer.tokens.size(), index) * 3,
                     static_cast<char>('a' + index));
}

std::string stream_of(const KvOffer& offer) {
  BlockWriter writer(offer);
  std::string stream;
  for (std::size_t i = 0; i < offer.blocks(); ++i) stream += writer.write(bytes_of_block(offer, i));
  return stream;
}

std::string refusal_of(const KvOffer& offer, const std::string& stream) {
  BlockReader reader(offer);
  return failure_of([&] {
           reader.add(stream);
           reader.finish();
         })
      .message;
}

TEST(KvSnapshot, AnOfferSurvivesTheWay) {
  const KvOffer offer = offer_of(33);
  const KvOffer again = parse_offer(format_offer(offer));
  EXPECT_EQ(again.identity, offer.identity);
  EXPECT_EQ(again.tokens, offer.tokens);
  EXPECT_EQ(again.blocks(), 3u);
  EXPECT_EQ(again.bytes(), 99u);
}

TEST(KvSnapshot, OtherOffersAreRefused) {
  for (
      const char* text :
      {"", "[]", "{}", R"({"format":"x"})",
       R"({"format":"fo-kv-1","block_tokens":8,"model":"m","fingerprint":"f","bytes_per_token":1,"tokens":[1]})",
       R"({"format":"fo-kv-1","block_tokens":16,"model":"m","fingerprint":"f","bytes_per_token":1,"tokens":[]})",
       R"({"format":"fo-kv-1","block_tokens":16,"model":"m","fingerprint":"f","bytes_per_token":1,"tokens":[-1]})",
       R"({"format":"fo-kv-1","block_tokens":16,"model":7,"fingerprint":"f","bytes_per_token":1,"tokens":[1]})"}) {
    EXPECT_EQ(status_of([&] { parse_offer(text); }), ExitStatus::kProtocol) << text;
  }
}

TEST(KvSnapshot, BlocksComeThroughInAnyPieces) {
  for (const std::size_t tokens : {1u, 16u, 17u, 48u}) {
    const KvOffer offer = offer_of(tokens);
    const std::string stream = stream_of(offer);
    EXPECT_EQ(stream.size(), stream_bytes(offer));
    for (const std::size_t size : {std::size_t{1}, std::size_t{50}, stream.size()}) {
      BlockReader reader(offer);
      for (std::size_t at = 0; at < stream.size(); at += size) reader.add(stream.substr(at, size));
      const std::vector<std::string> blocks = reader.finish();
      ASSERT_EQ(blocks.size(), offer.blocks());
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_EQ(blocks[i], bytes_of_block(offer, i));
      }
    }
  }
}

TEST(KvSnapshot, EveryTruncationIsAnError) {
  const KvOffer offer = offer_of(20);
  const std::string stream = stream_of(offer);
  for (std::size_t size = 0; size < stream.size(); ++size) {
    EXPECT_EQ(refusal_of(offer, stream.substr(0, size)), "read a KV cache: truncated") << size;
  }
  EXPECT_EQ(refusal_of(offer, stream + "x"), "read a KV cache: bytes after its last block");
}

TEST(KvSnapshot, EveryCorruptByteIsAnError) {
  const KvOffer offer = offer_of(20);
  const std::string stream = stream_of(offer);
  for (std::size_t at = 0; at < stream.size(); ++at) {
    std::string corrupt = stream;
    corrupt[at] = static_cast<char>(corrupt[at] ^ 1);
    const std::size_t block = at < kBlockHeadBytes + 48 ? 0 : 1;
    EXPECT_EQ(refusal_of(offer, corrupt),
              "read a KV cache: block " + std::to_string(block) + " does not match its checksum");
  }
}

TEST(KvSnapshot, AChecksumCoversModelTokensAndOrder) {
  const KvOffer offer = offer_of(32);
  const std::string stream = stream_of(offer);
  KvOffer other = offer;
  other.tokens[3] = 99;
  EXPECT_NE(refusal_of(other, stream), "");
  other = offer;
  other.identity.fingerprint = "beef";
  EXPECT_NE(refusal_of(other, stream), "");
  const std::size_t half = stream.size() / 2;
  EXPECT_NE(refusal_of(offer, stream.substr(half) + stream.substr(0, half)), "");
}

}  // namespace
}  // namespace fo::refengine
