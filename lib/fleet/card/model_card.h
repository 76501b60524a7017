// The card of a model in a Hugging Face folder, with the options of its engine.
#pragma once

#include <map>
#include <string>

#include "fleet/card/card.h"
#include "fleet/card/file_digests.h"

namespace fo::fleet {

/// The options of an engine. If an option is empty, the value in the folder is used.
struct ModelCardOptions {
  std::string folder;
  /// The fields of the card that an option may give: name, aliases, dtype, quantization,
  /// context_length, revision, draft, kv_abi, end_of_thinking and stop_ids.
  Card given;
  /// The folder of the tokenizer.
  std::string tokenizer;
  /// A file with the template's text.
  std::string chat_template;
  /// A file like generation_config.json.
  std::string generation_config;
  std::string reasoning_parser;
  std::string tool_parser;
  /// Folders of LoRA adapters by name.
  std::map<std::string, std::string> adapters;
  /// Options of digests of weights and adapters.
  DigestOptions digests;
};

/// The card of a folder with config.json and weights: model.safetensors, or the files that
/// model.safetensors.index.json names. Files of the tokenizer, a chat template and a generation
/// config may be missing.
///
/// Name and revision default to those in a path of the Hugging Face cache,
/// models--ORG--NAME/snapshots/REVISION; else the name is that of the folder. JSON files are hashed
/// as canonical JSON, without the members that are fields of the card themselves, and without the
/// version of the library that wrote them.
///
/// Throws kNoInput for a missing folder, configuration, weight file or file that an option names,
/// and for a `tokenizer` folder without tokenizer files; kBadData for malformed files and for a
/// card over kMaxCardBytes; and what digest_files throws.
Card model_card(const ModelCardOptions& options);

}  // namespace fo::fleet
