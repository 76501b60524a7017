#include "oracle/model/vocabulary.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "refengine/model/tokens.h"

namespace fo::oracle {
namespace {

constexpr std::array<std::string_view, kFirstWord - kBytes> kNamed{
    "<|begin|>", "<|end|>",   "<|system|>", "<|user|>", "<|assistant|>",
    "<|tool|>",  "<|media|>", "<think>",    "</think>", ""};

// Words, which are tokens with and without a space before them.
constexpr std::array<std::string_view, 96> kWords{
    "the",    "of",    "and",   "to",    "in",     "is",    "that",   "it",     "for",   "as",
    "was",    "with",  "be",    "by",    "on",     "not",   "he",     "this",   "are",   "or",
    "his",    "from",  "at",    "which", "but",    "have",  "an",     "had",    "they",  "you",
    "were",   "their", "one",   "all",   "we",     "can",   "her",    "has",    "there", "been",
    "if",     "more",  "when",  "will",  "would",  "who",   "so",     "no",     "she",   "other",
    "its",    "may",   "these", "what",  "them",   "than",  "some",   "him",    "time",  "into",
    "only",   "do",    "such",  "could", "about",  "two",   "our",    "any",    "out",   "up",
    "first",  "then",  "water", "light", "engine", "token", "memory", "answer", "model", "stream",
    "server", "quick", "brown", "river", "letter", "seven", "house",  "garden", "music", "number",
    "window", "paper", "stone", "field", "green",  "night"};

// Other tokens of several characters, of one character of several bytes, and of parts of
// characters.
constexpr std::array<std::string_view, 48> kPieces{
    ", ",          ". ",       "! ",       "? ",    "\n\n",         "    ",   "ing",   "tion",
    "ed",          "'s",       "er",       "ly",    "\",\"",        "\\n",    " (",    ");\n",
    "{\"",         "\"}",      "==",       "->",    "42",           "1000",   "3.14",  "\t\t",
    "é",           "ü",        "ß",        "日",    "本",           "語",     "🙂",  "🚀",
    "👩‍👩", "क्ष",       " é",       "é, ",   "END",          "stop",   "STOP",  " \xF0\x9F",
    "\x99\x82",    "\xE6\x97", "\xA5\xE6", "\xA9 ", "\xF0\x9F\x9A", "\x80. ", "ö\xC3", "\xB6n"};

struct Vocabulary {
  std::vector<std::string> texts;
  std::map<std::string, TokenId, std::less<>> ids;
  std::size_t longest = 0;
};

Vocabulary make_vocabulary() {
  Vocabulary v;
  for (TokenId byte = 0; byte < kBytes; ++byte) v.texts.emplace_back(1, static_cast<char>(byte));
  v.texts.insert(v.texts.end(), kNamed.begin(), kNamed.end());
  for (const std::string_view word : kWords) {
    v.texts.emplace_back(word);
    v.texts.push_back(" " + v.texts.back());
  }
  v.texts.insert(v.texts.end(), kPieces.begin(), kPieces.end());
  for (TokenId id = 0; id < v.texts.size(); ++id) {
    if (v.texts[id].empty()) continue;
    v.ids.emplace(v.texts[id], id);
    v.longest = std::max(v.longest, v.texts[id].size());
  }
  return v;
}

const Vocabulary& vocabulary() {
  static const Vocabulary made = make_vocabulary();
  return made;
}

}  // namespace

TokenId vocabulary_size() { return static_cast<TokenId>(vocabulary().texts.size()); }

std::string_view bytes_of(TokenId token) { return vocabulary().texts.at(token); }

std::vector<TokenId> encode(std::string_view text) {
  const Vocabulary& v = vocabulary();
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    // Each single byte is a token.
    std::size_t size = std::min(v.longest, text.size());
    auto found = v.ids.find(text.substr(0, size));
    while (found == v.ids.end()) found = v.ids.find(text.substr(0, --size));
    tokens.push_back(found->second);
    text.remove_prefix(size);
  }
  return tokens;
}

std::string valid_text(std::string_view bytes) {
  refengine::TextDecoder decoder;
  std::string text;
  for (const char byte : bytes) text += decoder.feed(static_cast<unsigned char>(byte));
  return text + decoder.finish();
}

std::string text_of(std::span<const TokenId> tokens, SpecialTokens special) {
  std::string bytes;
  for (const TokenId token : tokens) {
    if (special == SpecialTokens::kShown || !is_special(token)) bytes += bytes_of(token);
  }
  return valid_text(bytes);
}

}  // namespace fo::oracle
