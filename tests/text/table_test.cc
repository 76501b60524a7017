#include "text/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fo::text {
namespace {

using testing::ElementsAre;

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  TextTable table("lrl");
  table.add({"name", "n", "last"});
  table.add({"a", "1000", ""});
  EXPECT_EQ(table.text(), "name     n  last\na     1000\n");
  EXPECT_EQ(table.text("  "), "  name     n  last\n  a     1000\n");
  EXPECT_THAT(table.padded(), ElementsAre(ElementsAre("name", "   n", "last"),
                                          ElementsAre("a   ", "1000", "    ")));
}

TEST(TextTable, RowsOfNothingAreEmptyLines) {
  TextTable table("l");
  EXPECT_EQ(table.text(), "");
  table.add({""});
  EXPECT_EQ(table.text(), "\n");
}

TEST(Shown, HasNoControlCharactersAndAnEnd) {
  EXPECT_EQ(shown("plain"), "plain");
  EXPECT_EQ(shown("\x1b[2J\n"), "\\x1b[2J\\x0a");
  EXPECT_LT(shown(std::string(10'000, 'x')).size(), 300u);
}

}  // namespace
}  // namespace fo::text
