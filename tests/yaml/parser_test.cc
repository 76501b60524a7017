#include "yaml/parser.h"

#include <gtest/gtest.h>

#include "support/failure.h"

namespace {

using fo::yaml::Parser;

std::string parser_refusal(std::string_view text) {
  const std::string file = "f";
  const fo::test::Failure failure = fo::test::failure_of([&] {
    Parser parser(text, file);
    while (parser.next().type != YAML_STREAM_END_EVENT) {
    }
  });
  EXPECT_EQ(failure.status, fo::base::ExitStatus::kBadData) << text;
  return failure.message;
}

TEST(Parser, GivesEventsUpToTheEndOfTheStream) {
  const std::string file = "f";
  Parser parser("a: [é, b]\n", file);
  for (const yaml_event_type_t type :
       {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT, YAML_MAPPING_START_EVENT,
        YAML_SCALAR_EVENT, YAML_SEQUENCE_START_EVENT, YAML_SCALAR_EVENT}) {
    EXPECT_EQ(parser.next().type, type);
  }
  const auto position = fo::yaml::position_of(parser.next().start_mark);
  EXPECT_EQ(position.line, 1);
  EXPECT_EQ(position.column, 8);
  for (const yaml_event_type_t type : {YAML_SEQUENCE_END_EVENT, YAML_MAPPING_END_EVENT,
                                       YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT}) {
    EXPECT_EQ(parser.next().type, type);
  }
}

TEST(Parser, SaysWhatIsWrongWhere) {
  const char* const shapes[][2] = {
      {"a: b: c\n", "f:1:5: mapping values are not allowed in this context"},
      {"a: @x\n", "f:1:4: found character that cannot start any token"},
      {"a: \"\\q\"\n", "f:1:5: found unknown escape character while parsing a quoted scalar"},
      {"a: \"\\ud83d\\ude00\"\n",
       "f:1:7: found invalid Unicode character escape code while parsing a quoted scalar"},
      {"a: {x:}\n", "f:1:6: found unexpected ':' while scanning a plain scalar"},
      {"&a &b c\n", "f:1:4: did not find expected <document start>"},
  };
  for (const auto& [text, message] : shapes) EXPECT_EQ(parser_refusal(text), message);
}

TEST(Parser, SaysWhereItBegins) {
  EXPECT_EQ(parser_refusal("é: 1\na:\n- [b\n- c\n"),
            "f:5:1: did not find expected ',' or ']' while parsing a flow sequence that begins on "
            "line 3");
  EXPECT_EQ(parser_refusal("a:\n - b\n c: d\n"),
            "f:3:2: did not find expected '-' indicator while parsing a block collection that "
            "begins on line 2");
}

// The position of the mistake, which may be before the position that libyaml reports.
TEST(Parser, SaysWhereAScalarOrKeyBegins) {
  EXPECT_EQ(parser_refusal("a: 1\nb: \"c\nd: e\nf: g\n"),
            "f:2:4: found unexpected end of stream while scanning a quoted scalar");
  EXPECT_EQ(parser_refusal("a: 'b\n---\nc'\n"),
            "f:1:4: found unexpected document indicator while scanning a quoted scalar");
  EXPECT_EQ(parser_refusal("a: 1\nb\n\nc: 2\n"),
            "f:2:1: could not find expected ':' while scanning a simple key");
  EXPECT_EQ(
      parser_refusal("a: b\n  c: d\n"),
      "f:1:4: mapping values are not allowed in this context behind a scalar of several lines");
  EXPECT_EQ(parser_refusal("a: |\n b\n- c\n"),
            "f:3:1: did not find expected key while parsing a block mapping that begins on line 1");
}

}  // namespace
