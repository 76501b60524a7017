#include "oracle/model/vocabulary.h"

#include <gtest/gtest.h>

#include <set>

namespace fo::oracle {
namespace {

TEST(OracleVocabulary, EveryTextIsTheTextOfItsTokens) {
  for (const std::string text :
       {"", "the model", " the", "Grüße, 日本語 🙂👩‍👩!", "a\n\nb", "\t\"\\"}) {
    EXPECT_EQ(text_of(encode(text), SpecialTokens::kShown), text);
  }
}

TEST(OracleVocabulary, TokensDiffer) {
  std::set<std::string_view> texts;
  for (TokenId id = 0; id < vocabulary_size(); ++id) {
    EXPECT_TRUE(texts.insert(bytes_of(id)).second) << id;
  }
}

TEST(OracleVocabulary, TokensOfATextNeedNotBeThoseOfAnAnswer) {
  const std::vector<TokenId> letters{'t', 'h', 'e'};
  EXPECT_EQ(text_of(letters, SpecialTokens::kSkipped), "the");
  EXPECT_EQ(encode("the").size(), 1u);
  EXPECT_EQ(text_of(std::vector<TokenId>{'a', kEmpty, 'b'}, SpecialTokens::kSkipped), "ab");
}

TEST(OracleVocabulary, SpecialTokensAreShownOrSkipped) {
  const std::vector<TokenId> tokens = encode("<|user|>hi<|end|>");
  EXPECT_EQ(tokens.front(), kUser);
  EXPECT_EQ(tokens.back(), kEnd);
  EXPECT_EQ(text_of(tokens, SpecialTokens::kSkipped), "hi");
  EXPECT_EQ(text_of(tokens, SpecialTokens::kShown), "<|user|>hi<|end|>");
}

TEST(OracleVocabulary, CharactersMayLieAcrossTokensAndSpecialOnes) {
  const std::vector<TokenId> halves{0xF0, 0x9F, kEndThink, 0x99, 0x82};
  EXPECT_EQ(text_of(halves, SpecialTokens::kSkipped), "🙂");
  EXPECT_EQ(text_of(std::vector<TokenId>{0xF0, 'x'}, SpecialTokens::kSkipped), "\uFFFDx");
}

}  // namespace
}  // namespace fo::oracle
