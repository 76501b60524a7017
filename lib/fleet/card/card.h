// A model card describes what a worker computes. Two workers with equal checksums give the same
// distribution for the same tokens, so that a request may move between them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.h"

namespace fo::fleet {

/// The maximum size of a card, which is that of a registry's records.
inline constexpr base::ByteCount kMaxCardBytes = base::ByteCount{64} << 10;

/// Texts are UTF-8, and empty if unknown. A digest is "sha256:" and 64 hex digits, or empty.
struct Card {
  std::string name;
  std::vector<std::string> aliases;
  std::string architecture;
  std::string dtype;
  std::string quantization;
  /// Length in tokens; 0 if unknown.
  std::uint64_t context_length = 0;
  /// Digest of those parts of the model's configuration that are not fields of the card.
  std::string config;
  /// Digest of the names, sizes and contents of the weight files.
  std::string weights;
  std::string revision;
  std::string tokenizer;
  std::string chat_template;
  std::string generation_config;
  /// The parsers of an engine's output for "reasoning" and "tools".
  std::map<std::string, std::string> parsers;
  /// The ids of "bos", "eos", "pad" and "unk".
  std::map<std::string, std::uint64_t> special_ids;
  /// The model of speculative decoding.
  std::string draft;
  /// Digests of LoRA adapters by name.
  std::map<std::string, std::string> adapters;
  /// Connector, dtype, block size and layout of the KV cache, as one text: prefill and decode must
  /// match in it.
  std::string kv_abi;
  /// The sequence of ids that ends the model's thinking.
  std::vector<std::uint64_t> end_of_thinking;
  /// Each of these ids ends an answer.
  std::vector<std::uint64_t> stop_ids;
  /// Parameters of sampling that the model's authors recommend.
  std::map<std::string, double> generation_defaults;

  bool operator==(const Card&) const = default;
};

struct CardField {
  /// The field's name in JSON.
  std::string_view name;
  bool in_checksum = false;
  /// The value in canonical JSON; "" for an empty field.
  std::string value;
};

/// All fields, in the order of the checksum. Throws json::Misfit for text that is not UTF-8.
std::vector<CardField> fields_of(const Card& card);

/// The FieldHash over name and value of each field in the checksum.
std::string checksum(const Card& card);

/// A JSON object with version, checksum, and every field that is not empty.
nlohmann::ordered_json to_json(const Card& card);

/// Reads what to_json writes; unknown fields are ignored. `file` is a name for messages. Throws
/// Error(kBadData) "read 'file': reason" for a text over kMaxCardBytes or that is not JSON, another
/// version, a field of a wrong type, and a checksum that is not the card's.
Card parse_card(std::string_view text, const std::string& file);

}  // namespace fo::fleet
