#include "fleet/registry/key.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/failure.h"

namespace fo::fleet {
namespace {

TEST(RegistryKey, HasAKindAndItsSegments) {
  for (const char* key : {"instances/a/b/c/0123", "cards/sha256:00ff", "verdicts/id/canary-1",
                          "weights/meta-llama%2FLlama-3.1-8B", "routers/0123", "wanted/llama"}) {
    EXPECT_TRUE(is_key(key)) << key;
  }
  for (const char* key : {"", "/", "cards", "cards/", "cards//", "/cards/x", "cards/x/",
                          "cards/x/y", "instances/a/b/c", "instances/a/b/c/d/e", "other/x",
                          "cards/..", "cards/.hidden", "cards/-option", "cards/a b", "cards/a\n"}) {
    EXPECT_FALSE(is_key(key)) << key;
  }
  EXPECT_TRUE(is_key("cards/" + std::string(200, 'x')));
  EXPECT_FALSE(is_key("cards/" + std::string(201, 'x')));
  EXPECT_FALSE(is_key(std::string("cards/a\0b", 9)));
}

TEST(RegistryKey, ASegmentEscapesWhatPathsCannotHave) {
  EXPECT_EQ(key_segment("Llama-3.1_8B"), "Llama-3.1_8B");
  EXPECT_EQ(key_segment("meta-llama/Llama"), "meta-llama%2FLlama");
  EXPECT_EQ(key_segment("50%"), "50%25");
  EXPECT_EQ(key_segment(".."), "%2E.");
  EXPECT_EQ(key_segment("-x"), "%2Dx");
  EXPECT_EQ(key_segment("\xc3\xa9"), "%C3%A9");
  EXPECT_NE(key_segment("a/b"), key_segment("a%2Fb"));
  for (const char* text : {"meta-llama/Llama", "50%", "..", "-x", "\xc3\xa9", "a%2Fb"}) {
    EXPECT_EQ(fleet::text_of_segment(key_segment(text)), text);
  }
  EXPECT_EQ(fleet::text_of_segment("%zz%2"), "%zz%2");
  EXPECT_EQ(fo::test::status_of([] { key_segment(""); }), base::ExitStatus::kUsage);
  EXPECT_EQ(fo::test::status_of([] { key_segment(std::string(201, 'x')); }),
            base::ExitStatus::kUsage);
}

TEST(RegistryKey, SomeKindsAreKeptAndHaveIds) {
  EXPECT_TRUE(is_ephemeral("instances/a/b/c/0123"));
  EXPECT_TRUE(is_ephemeral("routers/0123"));
  EXPECT_FALSE(is_ephemeral("cards/x"));
  EXPECT_FALSE(is_ephemeral("verdicts/0123/canary"));
  EXPECT_EQ(id_of("instances/a/b/c/0123"), "0123");
  EXPECT_EQ(id_of("routers/0123"), "0123");
  EXPECT_EQ(id_of("verdicts/0123/canary"), "0123");
  EXPECT_EQ(id_of("cards/x"), "");
}

}  // namespace
}  // namespace fo::fleet
