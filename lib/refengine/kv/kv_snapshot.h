// The KV cache of a running request on its way to another engine: the offer of the source, and the
// blocks. Each block has a checksum, which also covers the model, the tokens and the blocks before
// it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"
#include "refengine/model/model_config.h"

namespace fo::refengine {

/// Tokens of a block; the last block may have fewer.
inline constexpr std::size_t kBlockTokens = 16;

/// KV caches of two engines are interchangeable if these are equal.
struct KvIdentity {
  std::string model;
  /// Fingerprint of the configuration and the weights (Rank::fingerprint).
  std::string fingerprint;
  base::ByteCount bytes_per_token = 0;
  friend bool operator==(const KvIdentity&, const KvIdentity&) = default;
};

/// The state of a running request: the tokens whose keys and values are computed.
struct KvOffer {
  KvIdentity identity;
  std::vector<TokenId> tokens;
  [[nodiscard]] std::size_t blocks() const;
  [[nodiscard]] base::ByteCount bytes() const;
};

/// The number of tokens in block `index` of `tokens` tokens.
std::size_t tokens_in_block(std::size_t tokens, std::size_t index);

/// The offer as JSON, with its estimate: the number of blocks and their bytes.
std::string format_offer(const KvOffer& offer);
/// Throws Error(kProtocol) for anything but an offer of at least one token.
KvOffer parse_offer(std::string_view text);

/// The offered blocks as a stream: for each a line "INDEX BYTES CHECKSUM\n" of kBlockHeadBytes
/// (numbers of 8 hexadecimal digits, and a SHA-256), and its bytes.
inline constexpr std::size_t kBlockHeadBytes = 8 + 1 + 8 + 1 + 64 + 1;
base::ByteCount stream_bytes(const KvOffer& offer);

class BlockWriter {
 public:
  explicit BlockWriter(const KvOffer& offer) : offer_(offer), last_(offer.identity.fingerprint) {}
  /// The next block of the stream; `bytes` are its keys and values.
  std::string write(std::string_view bytes);

 private:
  const KvOffer& offer_;
  std::size_t index_ = 0;
  std::string last_;
};

class BlockReader {
 public:
  explicit BlockReader(const KvOffer& offer) : offer_(offer), last_(offer.identity.fingerprint) {}
  /// Adds the next bytes of the stream. Throws Error(kProtocol) for a block that is not the
  /// expected one or does not match its checksum, and for bytes after the last block.
  void add(std::string_view bytes);
  /// All blocks. Throws Error(kProtocol) if the stream is incomplete.
  std::vector<std::string> finish();

 private:
  void take_block();
  [[nodiscard]] std::size_t block_bytes() const;

  const KvOffer& offer_;
  std::string last_;
  std::string pending_;
  std::vector<std::string> blocks_;
};

/// A received KV cache.
struct KvSnapshot {
  KvOffer offer;
  std::vector<std::string> blocks;
  /// The reservation of its memory, which ends when it is destroyed (KvStore::reserve).
  std::shared_ptr<void> room;
};

}  // namespace fo::refengine
