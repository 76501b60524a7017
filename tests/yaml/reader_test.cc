#include "yaml/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/failure.h"
#include "yaml/scalar.h"
#include "yaml/writer.h"

namespace {

using fo::base::ExitStatus;
using fo::test::Failure;
using fo::test::failure_of;
using fo::yaml::Document;
using fo::yaml::Node;
using fo::yaml::ReadLimits;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kHint = "; a template: run it through helm template or envsubst first";

std::vector<Document> read(std::string_view text, const ReadLimits& limits = {}) {
  return fo::yaml::read_yaml(text, "f", limits);
}

Node read_one(std::string_view text) {
  std::vector<Document> documents = read(text);
  EXPECT_EQ(documents.size(), 1U) << text;
  return documents.empty() ? Node() : std::move(documents.front().root);
}

std::string refusal(std::string_view text, const ReadLimits& limits = {}) {
  const Failure failure = failure_of([&] { read(text, limits); });
  EXPECT_EQ(failure.status, ExitStatus::kBadData) << text.substr(0, 80);
  EXPECT_THAT(failure.message, Not(HasSubstr("\n")));
  return failure.message;
}

std::vector<std::string> sources(std::string_view text) {
  std::vector<std::string> out;
  for (const Document& document : read(text)) out.push_back(document.source);
  return out;
}

// Checks that the concatenated sources parse to the same documents.
void expect_sources_to_stand_for(std::string_view text) {
  const std::vector<Document> documents = read(text);
  std::string together;
  for (const Document& document : documents) {
    EXPECT_TRUE(document.source.ends_with('\n'));
    together += "---\n" + document.source;
  }
  const std::vector<Document> again = read(together);
  ASSERT_EQ(again.size(), documents.size()) << together;
  for (std::size_t i = 0; i < again.size(); ++i) {
    EXPECT_TRUE(again[i].root.same_as(documents[i].root)) << together;
    EXPECT_EQ(again[i].source, documents[i].source);
  }
}

TEST(ReadYaml, KeepsOrderTextAndPlaces) {
  const Node map = read_one("b: 0644\n\"a\":\n- 'x'\n-  y z\n");
  ASSERT_EQ(map.members().size(), 2U);
  EXPECT_EQ(map.members()[0].key, "b");
  EXPECT_TRUE(map.members()[0].plain_key);
  EXPECT_EQ(map.members()[0].value.text(), "0644");
  EXPECT_TRUE(map.members()[0].value.is_plain());
  EXPECT_EQ(map.members()[0].value.position().column, 4);
  EXPECT_FALSE(map.members()[1].plain_key);
  EXPECT_EQ(map.members()[1].position.line, 2);
  EXPECT_EQ(map.members()[1].position.column, 1);
  const Node& list = map.members()[1].value;
  ASSERT_EQ(list.items().size(), 2U);
  EXPECT_FALSE(list.items()[0].is_plain());
  EXPECT_EQ(list.items()[0].position().column, 3);
  EXPECT_EQ(list.items()[1].position().line, 4);
  EXPECT_EQ(list.items()[1].position().column, 4);
}

TEST(ReadYaml, ReadsJson) {
  const Node map = read_one("{\"a\":\t[1, true, null, \"\\ud83d\\ude00\\/\\n\"],\n\t\"b\": {}}\n");
  EXPECT_TRUE(map.same_as(Node::map(
      {{"a", Node::list({Node::integer(1), Node::boolean(true), Node(), Node::string("😀/\n")})},
       {"b", Node::map()}})));
}

TEST(ReadYaml, AValueIsWhereItsFirstMarkIs) {
  const Node map = read_one("a: |\n  x\nb:\nc: &x !!str y\nd: *x\ne: &m\n  f: 1\n");
  const auto place = [&](std::size_t member) {
    const auto position = map.members().at(member).value.position();
    return std::pair(position.line, position.column);
  };
  EXPECT_EQ(place(0), std::pair(1, 4));
  EXPECT_EQ(place(1), std::pair(3, 3));
  EXPECT_EQ(place(2), std::pair(4, 4));
  // An alias is a copy with the position of the anchored node.
  EXPECT_EQ(place(3), std::pair(4, 4));
  EXPECT_EQ(place(4), std::pair(6, 4));
}

TEST(ReadYaml, PassesOverEmptyDocuments) {
  EXPECT_THAT(read(""), IsEmpty());
  EXPECT_THAT(read("# nothing\n"), IsEmpty());
  EXPECT_THAT(read("---\n---\n# x\n---\nnull\n...\n"), IsEmpty());
  EXPECT_EQ(read("---\n---\na: 1\n---\n").size(), 1U);
}

TEST(ReadYaml, TakesAByteOrderMarkAndCarriageReturns) {
  const Node map = read_one(
      "\xef\xbb\xbf"
      "a: b\r\nc: |\r\n  d\r\n  e\r\n");
  EXPECT_EQ(map.find("a")->text(), "b");
  EXPECT_EQ(map.find("c")->text(), "d\ne\n");
  EXPECT_EQ(map.members()[0].position.column, 1);
}

TEST(ReadYaml, TagsOfTheCoreSchemaSayWhatAScalarIs) {
  const Node map = read_one(
      "a: !!str 5\nb: !!int \"5\"\nc: ! 12\nd: !!float 1\ne: !!bool 'on'\nf: !!map {x: !!seq []}\n"
      "g: !<tag:yaml.org,2002:str> null\n!!str on: 1\n");
  EXPECT_EQ(fo::yaml::as_string(*map.find("a")), "5");
  EXPECT_EQ(fo::yaml::as_integer(*map.find("b")), 5);
  EXPECT_EQ(fo::yaml::as_string(*map.find("c")), "12");
  EXPECT_EQ(fo::yaml::as_boolean(*map.find("e")), true);
  EXPECT_EQ(fo::yaml::as_string(*map.find("g")), "null");
  EXPECT_FALSE(map.members().back().plain_key);
  EXPECT_EQ(refusal("a: !foo b\n"), "f:1:4: the tag '!foo' does not fit this value");
  EXPECT_EQ(refusal("a: !!int x\n"), "f:1:4: the tag '!!int' does not fit this value");
  EXPECT_EQ(refusal("a: !!map [1]\n"), "f:1:4: the tag '!!map' does not fit this value");
  EXPECT_THAT(refusal("a: !!timestamp 2001-12-14\n"), HasSubstr("'!!timestamp'"));
  EXPECT_THAT(refusal("a: !!python/object:x {}\n"), HasSubstr("does not fit this value"));
}

TEST(ReadYaml, AliasesBecomeCopies) {
  const Node map = read_one("a: &x {b: &y [1]}\nc: *x\nd: *y\ne: &x 5\nf: *x\n*x : g\n");
  EXPECT_TRUE(map.find("c")->same_as(*map.find("a")));
  EXPECT_EQ(map.find("d")->items().size(), 1U);
  EXPECT_EQ(map.find("f")->text(), "5");
  EXPECT_EQ(map.members().back().key, "5");
}

TEST(ReadYaml, AnAnchorEndsWithItsDocument) {
  EXPECT_EQ(refusal("a: &x 1\n---\nb: *x\n"), "f:3:4: missing anchor for the alias 'x'");
}

TEST(ReadYaml, MergesMaps) {
  const Node map = read_one(
      "a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne:\n  b: 4\n  <<: [*x, {z: 1, c: 5}]\n  q: 1\n");
  EXPECT_EQ(fo::yaml::to_yaml(*map.find("d")), "c: 2\nb: 3\n");
  EXPECT_EQ(fo::yaml::to_yaml(*map.find("e")), "b: 4\nc: 2\nz: 1\nq: 1\n");
  EXPECT_EQ(read_one("a: {\"<<\": 5}\n").find_path({"a", "<<"})->text(), "5");
  EXPECT_EQ(refusal("a: {<<: 5}\n"), "f:1:5: '<<' merges maps only");
  EXPECT_EQ(refusal("a: {<<: [{}, 5]}\n"), "f:1:5: '<<' merges maps only");
}

TEST(ReadYaml, RefusesDuplicateKeysHoweverTheyAreWritten) {
  EXPECT_EQ(refusal("a: 1\nb: 2\na: 3\n"), "f:3:1: the key 'a' appears twice");
  EXPECT_EQ(refusal("{\"a\": 1, 'a': 2}"), "f:1:10: the key 'a' appears twice");
  EXPECT_EQ(refusal("on: 1\nyes: 2\n"), "f:2:1: the key 'yes' appears twice");
  EXPECT_EQ(refusal("0x10: 1\n\"16\": 2\n"), "f:2:1: the key '16' appears twice");
  EXPECT_EQ(refusal("<<: {a: 1}\n<<: {b: 1}\n"), "f:2:1: the key '<<' appears twice");
}

TEST(ReadYaml, RefusesKeysThatAreNoScalars) {
  EXPECT_EQ(refusal("? [a]\n: b\n"), "f:1:3: a key that is not a scalar");
  EXPECT_EQ(refusal("a: &x []\n*x : b\n"), "f:2:1: a key that is not a scalar");
  EXPECT_EQ(refusal("~: b\n"), "f:1:1: a key that is null");
}

TEST(ReadYaml, RefusesAnAliasOfWhatContainsIt) {
  EXPECT_EQ(refusal("a: &x\n  b: [*x]\n"),
            "f:2:7: the alias 'x' refers to a value that contains it");
  EXPECT_EQ(refusal("&x [*x]\n"), "f:1:5: the alias 'x' refers to a value that contains it");
}

TEST(ReadYaml, RefusesAliasBombsBeforeTheyGoOff) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    const std::string name = "a" + std::to_string(i);
    bomb += name + ": &" + name + " [" + last;
    for (int k = 0; k < 8; ++k) bomb.append(", ").append(last);
    bomb += "]\n";
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("more than 1000000 values after expansion of aliases"));

  std::string text = "a: &a " + std::string(1 << 20, 'x') + "\nb:\n";
  for (int i = 0; i < 20; ++i) text += "- *a\n";
  EXPECT_THAT(refusal(text), HasSubstr("aliases that expand to more than 16777216 bytes"));

  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 200; ++i) {
    deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) +
            "]\n";
  }
  EXPECT_THAT(refusal(deep), HasSubstr("more than 100 nested lists and maps"));
}

TEST(ReadYaml, KeepsItsLimits) {
  const ReadLimits limits{.bytes = 30, .documents = 2, .depth = 3, .nodes = 5};
  EXPECT_EQ(read("[[[1]]]", limits).size(), 1U);
  EXPECT_EQ(refusal("[[[[1]]]]", limits), "f:1:4: more than 3 nested lists and maps");
  EXPECT_EQ(refusal("[1,2,3,4,5]", limits),
            "f:1:10: more than 5 values after expansion of aliases");
  EXPECT_EQ(refusal("--- a\n--- b\n--- c\n", limits), "f:3:1: more than 2 documents");
  EXPECT_EQ(refusal(std::string(31, 'a'), limits), "f:1:1: more than 30 bytes");
}

TEST(ReadYaml, RefusesWhatIsNested100MegabytesDeep) {
  EXPECT_EQ(refusal(std::string(100'000'000, '[')), "f:1:1: more than 16777216 bytes");
}

TEST(ReadYaml, RefusesNestingBelowTheByteLimit) {
  constexpr std::size_t kSize = std::size_t{4} << 20;
  for (const std::string pattern : {"[", "{", "- ", "? ", "[\n", "{a: ", "a: {", "- - [", "'\"",
                                    ",", "&a ", "!a ", "[ \n", "[[],", "\"a\" "}) {
    std::string text = "[";
    if (pattern == "- " || pattern == "? ") text.clear();
    while (text.size() < kSize) text += pattern;
    EXPECT_THAT(refusal(text), StartsWith("f:")) << pattern;
  }
  EXPECT_THAT(refusal("{a: " + std::string(1 << 20, '\n')), StartsWith("f:1048577:1: "));
}

TEST(ReadYaml, ReadsManyLongRunsOfBlanks) {
  struct Shape {
    const char* begin;
    const char* end;
    std::size_t size;
  };
  // Folding removes one newline of each run.
  constexpr std::size_t kRuns = 100;
  constexpr std::size_t kLiteral = kRuns * 8001;
  constexpr std::size_t kFolded = kRuns * 8000;
  for (const Shape& shape :
       {Shape{"a: |\n", "", kLiteral}, Shape{"a: >\n", "", kFolded + 1},
        Shape{"a:\n", "", kFolded - 7999}, Shape{"a: 'b\n", "'", kFolded + 2},
        Shape{"a: \"b\n", "\"", kFolded + 2}, Shape{"a: [b\n", "]", kFolded + 2}}) {
    std::string text = shape.begin;
    for (std::size_t i = 0; i < kRuns; ++i) text += std::string(8000, '\n') + "  x";
    const Node map = read_one(text + shape.end);
    const Node* value = map.find("a");
    EXPECT_EQ((value->is_list() ? value->items().at(0) : *value).text().size(), shape.size)
        << shape.begin;
  }
  std::string text = "a:\n";
  for (int i = 0; i < 10'000; ++i) text += std::string(100, ' ') + "- x\n";
  EXPECT_EQ(read_one(text).find("a")->items().size(), 10'000U);
}

TEST(ReadYaml, BracketsEndAndGoOnAtAnyColumn) {
  const char* const shapes[][2] = {
      {"p:\n  a: [\n    x\n  ]\n", "{p: {a: [x]}}"},
      {"a: [\n]\nb: 1\n", "{a: [], b: 1}"},
      {"a: [x\n#c\n]\n", "{a: [x]}"},
      {"a: {\n  b: 1\n}\nc: 2\n", "{a: {b: 1}, c: 2}"},
      {"a: {\nb: 1\n}\n", "{a: {b: 1}}"},
      {"a: {\n? x\n: y\n}\n", "{a: {x: y}}"},
      {"p:\n  a: [\"x\",\n\"w\", z,\nq]\n", "{p: {a: [x, w, z, q]}}"},
      {"- [\n]\n- a\n", "[[], a]"},
      {"a:\n- [\n1\n]\n", "{a: [[1]]}"},
      {"a: [{\n}, {\nb: [\n1\n]}\n]\n", "{a: [{}, {b: [1]}]}"},
      {"a: {\n\tb: 1,\n\tc: [\n\t\t\"x\"\n\t]\n}\n", "{a: {b: 1, c: [x]}}"},
      {"{\n\tb: 1,\n\tc: [\n\t\t1\n\t]\n}\n", "{b: 1, c: [1]}"},
  };
  for (const auto& [text, meaning] : shapes) {
    EXPECT_TRUE(read_one(text).same_as(read_one(meaning))) << text;
    expect_sources_to_stand_for(text);
  }
}

TEST(ReadYaml, AQuestionMarkInBracketsBeginsAKey) {
  EXPECT_TRUE(read_one("a: [?b, c]\n").same_as(read_one("{a: [{b: ~}, c]}")));
}

TEST(ReadYaml, RefusesTabsThatKubernetesRefuses) {
  EXPECT_EQ(refusal("a: {\n\tb: 1,\n\tc: [\n\t\t1\n\t]\n}\n"),
            "f:5:1: found a tab character that violates indentation while scanning a plain scalar "
            "that begins on line 4");
  EXPECT_EQ(refusal("a: |\n  \tb\n"),
            "f:2:3: found a tab character where an indentation space is expected while scanning a "
            "block scalar that begins on line 1");
  EXPECT_EQ(refusal("a:\n\tb: c\n"), "f:2:1: found character that cannot start any token (a tab)");
  EXPECT_EQ(refusal("-\tb: c\n"), "f:1:2: found character that cannot start any token (a tab)");
}

TEST(ReadYaml, QuotesGoOnAtAnyColumn) {
  const char* const shapes[][2] = {
      {"a: \"x\ny\"\nb: 1\n", "{a: x y, b: 1}"},
      {"a: 'x\ny'\nb: 1\n", "{a: x y, b: 1}"},
      {"p:\n  a: \"x\n y\"\n  b: 1\n", "{p: {a: x y, b: 1}}"},
      {"p:\n  a: 'x\n  y'\n", "{p: {a: x y}}"},
      {"p:\n  a: \"x\n\ny\"\n", "{p: {a: \"x\\ny\"}}"},
      {"a: {b: \"x\ny\"}\n", "{a: {b: x y}}"},
  };
  for (const auto& [text, meaning] : shapes) {
    EXPECT_TRUE(read_one(text).same_as(read_one(meaning))) << text;
    expect_sources_to_stand_for(text);
  }
}

TEST(ReadYaml, NoDocumentBeginsInBracketsOrQuotes) {
  for (const char* text : {"a: [\n---\nb: 1\n", "a: {x: 1,\n---\n}\n", "a: \"x\n---\ny\"\n",
                           "- 'x\n---\n", "a: [b\nc: d\n", "p:\n  a: [b\n  c: d\n"}) {
    EXPECT_THAT(refusal(text), StartsWith("f:")) << text;
  }
}

TEST(ReadYaml, RefusesWhatIsNoText) {
  EXPECT_EQ(refusal(std::string_view("a: \0", 4)), "f:1:4: a control character (U+0000)");
  EXPECT_EQ(refusal(std::string_view("3\0\"\\ud83d", 9)), "f:1:2: a control character (U+0000)");
  EXPECT_EQ(refusal("a: b\r\nc: \x1b[2J\n"), "f:2:4: a control character (U+001B)");
  EXPECT_EQ(refusal("a: \xc2\x9b\n"), "f:1:4: a control character (U+009B)");
  EXPECT_EQ(refusal("a: b\rc: d\n"), "f:1:5: a carriage return without a newline");
  EXPECT_EQ(refusal("%YAML 1.1\n\xc2\x85"
                    "e3"),
            "f:2:1: a U+0085, which some parsers read as a line break: write it as \"\\u0085\"");
  EXPECT_THAT(refusal("a: \"b\xe2\x80\xa8\"\n"), StartsWith("f:1:6: a U+2028, which"));
  EXPECT_THAT(refusal("# \xe2\x80\xa9\n"), StartsWith("f:1:3: a U+2029, which"));
  EXPECT_EQ(refusal("ü: \xff\n"), "f:1:4: not UTF-8");
  EXPECT_EQ(refusal("a: \xed\xa0\x80\n"), "f:1:4: not UTF-8");
  EXPECT_EQ(refusal("a: \xe2\x82"), "f:1:4: not UTF-8");
  EXPECT_THAT(refusal("a: 1\n\xef\xbb\xbf"
                      "b: 1\n"),
              StartsWith("f:2:1: a byte order mark"));
  EXPECT_THAT(refusal("a: \"\xef\xbb\xbf\"\n"), StartsWith("f:1:5: a byte order mark"));
  // UTF-16, with and without a byte order mark.
  EXPECT_EQ(refusal(std::string_view("\xff\xfe"
                                     "a\0:\0 \0b\0",
                                     10)),
            "f:1:1: not UTF-8");
  EXPECT_EQ(refusal(std::string_view("\xfe\xff"
                                     "\0a\0:\0 \0b",
                                     10)),
            "f:1:1: not UTF-8");
  EXPECT_EQ(refusal(std::string_view("a\0:\0 \0b\0", 8)), "f:1:2: a control character (U+0000)");
}

TEST(ReadYaml, RefusesWhatIsNoYaml) {
  for (const char* text :
       {"a: b\n\tc: d\n", "a: \"b\n", "a: b: c\n", "a:\n - b\n c: d\n", "- a\nb: c\n", "a: [b\n",
        "a: @x\n", "a: %x\n", "&a &b c\n", "--- a: b\n", "a: \"\\q\"\n", "a: *\n",
        "%TAG !a! b\n---\na: b\n", "%FOO\n---\na\n", "%YAML 2.0\n---\na\n",
        "%YAML 1.1\n%YAML 1.1\n---\na\n", "%YAML 1.1\na\n", "%YAML 1.1"}) {
    EXPECT_THAT(refusal(text), testing::MatchesRegex("f:[0-9]+:[0-9]+: .+")) << text;
  }
}

TEST(ReadYaml, FoldsLinesInQuotes) {
  EXPECT_EQ(read_one("\"a\\\n  \\ b\n\n  c\"").text(), "a b\nc");
  EXPECT_EQ(read_one("a: \"b\\ \\ \n  c\"\n").find("a")->text(), "b   c");
  EXPECT_EQ(read_one("a: \"b\\\t\\ \r\n  c\\  \"\n").find("a")->text(), "b\t  c  ");
}

TEST(ReadYaml, ADirectiveIsNoneInAScalar) {
  EXPECT_EQ(read_one("a: 'x\n%y'\nb: |\n  %z\n").find("a")->text(), "x %y");
  EXPECT_EQ(read_one("x\n%YAML\n").text(), "x %YAML");
  EXPECT_EQ(refusal("a: 1\n...\n%TAG !a! b\n---\na: b\n"),
            "f:3:1: a directive: only %YAML is supported");
}

TEST(ReadYaml, ABlockAtTheEndHasANewlineOnlyWhereTheFileHas) {
  const char* const shapes[][2] = {
      {"a: |\n  x", "x"},
      {"a: |\n  x\n", "x\n"},
      {"a: |+\n  x", "x"},
      {"a: |+\n  x\n", "x\n"},
      {"a: |-\n  x", "x"},
      {"a: |\n  x\n  ", "x\n"},
      {"a: |\n  x  \n  ", "x  \n"},
      {"a: |\n  x\n    ", "x\n  "},
      {"a: |+\n  x\n  ", "x\n"},
      {"a: |+\n  x\n\n", "x\n\n"},
      {"a: |+\n\n  ", "\n"},
      {"a: >\n  x\n  y", "x y"},
      {"a: >\n  x\n  y\n", "x y\n"},
      {"a: |\n  x\n# c", "x\n"},
      {"a: |\r\n  x", "x"},
      {"z:\na: &x !!str |2+\n   x", " x"},
      {"a: |\n\n  x", "\nx"},
      {"a: |\n", ""},
      {"a: |", ""},
      {"a: >+\n ", ""},
      {"a: |+\n  x\n\n  ", "x\n\n"},
  };
  for (const auto& [text, value] : shapes) {
    EXPECT_EQ(read_one(text).find("a")->text(), value) << text;
    expect_sources_to_stand_for(text);
  }
  EXPECT_EQ(read_one("- &x |\n  a\n- *x").items()[1].text(), "a\n");
}

TEST(ReadYaml, ReadsBackWhatADateIsFollowedBy) {
  for (const char* text : {"a: ! \"2001-12-14 1:1:1\\n: x\"\n", "a: ! \"5\"\n", "a: ! '#'\n",
                           "a: 2001-12-14 1:1:1\n\n  b\n", "a: ! ' x: y'\n"}) {
    const Node map = read_one(text);
    EXPECT_EQ(fo::yaml::to_json(read_one(fo::yaml::to_yaml(map))), fo::yaml::to_json(map)) << text;
  }
}

TEST(ReadYaml, TakesAByteOrderMarkBehindAMarker) {
  EXPECT_THAT(sources("\xef\xbb\xbf"
                      "a: 1\n--- # x\n\xef\xbb\xbf"
                      "b: 1\n"),
              ElementsAre("a: 1\n", "b: 1\n"));
}

TEST(ReadYaml, SaysATemplateOnlyWhereOneStands) {
  const std::string far(100, 'x');
  const std::vector<std::string> texts = {"{\"a\": \"${A}\", \"" + far + "\": 1, \"b\" 2}\n",
                                          std::string(200, '{'),
                                          "a: ${A}\nb: [\n",
                                          "{\"a\": \"{{ .x }}\", \"b\": \"\xff\"}\n",
                                          "a: [{{b}\n",
                                          "{\"" + far + "\" 2, \"a\": \"{{ .x }}" + far + "\"}\n"};
  for (const std::string& text : texts) {
    EXPECT_THAT(refusal(text), Not(testing::EndsWith(kHint))) << text;
  }
}

TEST(ReadYaml, SaysWhereItMeetsATemplate) {
  EXPECT_EQ(refusal("a: {{ .Values.x }}\n"),
            std::string("f:1:5: a key that is not a scalar") + kHint);
  for (const char* text : {"x: 1\na: {{ .x }}: b\n", "{{- if .x }}\na: b\n{{- end }}\n",
                           "a:\n  {{- toYaml .x | nindent 2 }}\n", "a: \"x\" {{ .y }}\n",
                           "${A}: b\n  c: d\n", "a: {{ include \"x\" . | quote }}\n"}) {
    EXPECT_THAT(refusal(text), testing::EndsWith(kHint)) << text;
  }
  EXPECT_THAT(refusal("a: ${A}\nb: [\n"), Not(testing::EndsWith(kHint)));
  EXPECT_EQ(read_one("image: ${IMG}\n").find("image")->text(), "${IMG}");
}

TEST(Source, IsEveryByteBetweenTheLinesThatDivide) {
  EXPECT_THAT(sources("a: 1 # x\n---\n# y\nb:   {c: 2}\n\n---\nd: |\n  ---\n  e\n"),
              ElementsAre("a: 1 # x\n", "# y\nb:   {c: 2}\n\n", "d: |\n  ---\n  e\n"));
}

TEST(Source, LeavesTheLineThatDividesOut) {
  EXPECT_THAT(sources("--- # first\na: 1\n--- \t\nb: 1\n"), ElementsAre("a: 1\n", "b: 1\n"));
  EXPECT_THAT(sources("---\r\na: 1\r\n---\r\nb: 1\r\n"), ElementsAre("a: 1\r\n", "b: 1\r\n"));
}

TEST(Source, KeepsWhatStandsBehindTheMarker) {
  EXPECT_THAT(sources("--- {a: 1}\n--- \"c\"\n"), ElementsAre("{a: 1}\n", "\"c\"\n"));
}

TEST(Source, EndsAtTheMarkOfTheEnd) {
  EXPECT_THAT(sources("a: 1\n...\n# mid\n---\nb: 1\n... # x\n# y\n---\nc: 1\n...\n...\n"),
              ElementsAre("a: 1\n", "# mid\nb: 1\n", "# y\nc: 1\n"));
  EXPECT_THAT(sources("a: 1\n%YAML 1.2\n---\nb: 1\n..."), ElementsAre("a: 1\n", "b: 1\n"));
}

TEST(Source, BeginsWithAMarkerButForTheFirst) {
  constexpr const char* kReason = "did not find expected <document start>";
  EXPECT_EQ(refusal("b: 1\n... # x\nc: 1\n"), std::string("f:3:1: ") + kReason);
  EXPECT_EQ(refusal("--- b\n...\n\n&a c: 1\n"), std::string("f:4:1: ") + kReason);
  for (const char* text :
       {"...\n# x\n...\n&a a: 1\n", "...\n!!str", "...\n &a\n", "...\n&#\n...\n&r\n\\\n"}) {
    EXPECT_EQ(refusal(text), "f:1:1: did not find expected node content") << text;
  }
}

TEST(Source, HasTheCommentsInFront) {
  EXPECT_THAT(sources("# licence\n%YAML 1.2\n---\n# Source: x\na: 1\n---\n# none\n---\nb: 1\n"),
              ElementsAre("# licence\n# Source: x\na: 1\n", "b: 1\n"));
}

TEST(Source, EndsWithANewline) {
  EXPECT_THAT(sources("a: 1\n---\nb: |\n  x"), ElementsAre("a: 1\n", "b: |-\n  x\n"));
  EXPECT_THAT(sources("{\n  \"a\": [1]\n}"), ElementsAre("{\n  \"a\": [1]\n}\n"));
  EXPECT_THAT(sources("\xef\xbb\xbf"
                      "a: 1"),
              ElementsAre("a: 1\n"));
}

TEST(Source, StandsForItsDocument) {
  for (const char* text : {"a: 1 # x\n---\n# y\nb:   {c: 2}\n\n---\nd: |\n  ---\n  e\n",
                           "--- # first\na: 1\n--- \nb: 1\n",
                           "--- {a: 1}\n--- \"c\"\n--- !!map\nx: y\n--- &a\nb: c\n",
                           "--- {a: 1}\n\n\n--- b",
                           "a: 1\n...\n# mid\n---\nb: 1\n... # x\n---\nc: 1\n...\n...\n",
                           "---\na: |+\n  x\n\n\n---\nb: 1",
                           "%YAML 1.2\n---\na: 1\n...\n%YAML 1.1\n# c\n---\nb: 1\n",
                           "# a\n\n\n# b\na: 1\n...",
                           "\"a\n b\"\n",
                           "---\n...\n# x\n...\n---\n&a a: 1\n",
                           "a: 1\r\n...\r\n---\r\nb: 1\r\n",
                           "--- 'a\n\n  b'\n",
                           "--- ---\n",
                           "--- ...a\n",
                           "[a,\n b]",
                           "---\n...\n---\n!!str",
                           "---\n...\n---\n &a\n",
                           "a: |\n  x",
                           "a: 1\n---\nb: |+\n  x\n  y",
                           "a: >\n  x\n    ",
                           "---\n&b\n...\n---\n&r\n\\\n",
                           "? |+\n  a\n ",
                           "a: |+\n  x\nb:\n  ",
                           "a: &x # c | d\n  !!str\n  |+3\n   x",
                           "--- |\n x",
                           "a: |\n  x\n---\nb",
                           "a: |-\n  x\n ",
                           "a: |\n  x\n%YAML 1.1\n---\nb: 1\n",
                           "--- >1\n a\n--- \"b\n c\"\n"}) {
    SCOPED_TRACE(text);
    expect_sources_to_stand_for(text);
  }
}

TEST(ReadYaml, ReadsBackWhatTheWriterWrites) {
  const std::vector<std::string> texts = {"",
                                          "a",
                                          " a",
                                          "a ",
                                          "\n",
                                          "a\n",
                                          "a\n\n",
                                          " a\n",
                                          "\na",
                                          "a\n b\n",
                                          "\ta",
                                          "\ta\n",
                                          "a\n\t",
                                          "a\n  ",
                                          "  \na",
                                          "a\n  \nb",
                                          "a\r\n",
                                          "a: b",
                                          "- a",
                                          "---",
                                          "...",
                                          "# a",
                                          "a #b",
                                          "'",
                                          "\"",
                                          "\\",
                                          "on",
                                          "0644",
                                          "1e3",
                                          "null",
                                          "~",
                                          "<<",
                                          "=",
                                          "😀\n",
                                          "\xc2\x85",
                                          "\xe2\x80\xa8\n",
                                          "\xef\xbb\xbf",
                                          "\x7f",
                                          "%a",
                                          "{{ a }}",
                                          "#!/bin/sh\nset -e\n\n  if x; then\n\ty\n  fi\n",
                                          "\n\n\na\n\n",
                                          "a\n---\nb\n",
                                          "a\n...\n",
                                          std::string(3000, 'k'),
                                          std::string(3000, ' ') + "\n"};
  Node list = Node::list();
  Node map = Node::map();
  const auto expect_to_read_yaml = [&] {
    for (const Node& node : {list, map, Node::map({{"a", list}}), Node::list({map, list})}) {
      EXPECT_EQ(fo::yaml::to_json(read_one(fo::yaml::to_yaml(node))), fo::yaml::to_json(node));
    }
  };
  for (const std::string& text : texts) {
    list.push_back(Node::string(text));
    const std::string key = text.substr(0, 1000);
    map.set(key, Node::string(text));
    list.push_back(Node::list({Node::string(text), Node::map({{key, Node::strings({text})}})}));
  }
  expect_to_read_yaml();
  for (const Node& node : {list, map, Node::map({{"a", list}}), Node::list({map, list})}) {
    EXPECT_TRUE(read_one(fo::yaml::to_json(node)).same_as(node));
  }
  for (const std::string& text : texts) {
    map.set(text, Node::string(text));
    list.push_back(Node::map({{text, Node::strings({text})}}));
  }
  expect_to_read_yaml();
  for (const std::string& text : texts) {
    const Node scalar = Node::string(text);
    EXPECT_EQ(fo::yaml::as_string(read_one(fo::yaml::to_yaml(scalar))), text);
    EXPECT_TRUE(read_one(fo::yaml::to_json(scalar)).same_as(scalar)) << text;
  }
}

TEST(ReadYaml, AKeyHasItsColonWithin1024Characters) {
  const std::string fits(1024, 'k');
  const std::string quoted(1022, 'k');
  const std::string longer(1025, 'k');
  EXPECT_EQ(read_one(fits + ": 1\n").members().at(0).key, fits);
  EXPECT_EQ(read_one("{\"" + quoted + "\": 1}\n").members().at(0).key, quoted);
  EXPECT_EQ(refusal(longer + ": 1\n"), "f:1:1026: mapping values are not allowed in this context");
  EXPECT_EQ(refusal("a: 1\n" + longer + ": 1\n"),
            "f:2:1: could not find expected ':' while scanning a simple key");
  EXPECT_EQ(refusal("{\"" + longer + "\": 1}\n"),
            "f:1:1029: did not find expected ',' or '}' while parsing a flow mapping");
  EXPECT_EQ(read_one("? " + longer + "\n: 1\n").members().at(0).key, longer);
}

TEST(ReadYaml, TakesNoKeyForTheTextOfAnEmptyBlockScalar) {
  const char* const shapes[][2] = {
      {"x:\n- a: |\n  b: 1\n", "{x: [{a: '', b: 1}]}"},
      {"x:\n- a: |\n  \n  b: 1\n", "{x: [{a: '', b: 1}]}"},
      {"x:\n- a: >+\n \n  b: 1\n    c\n", "{x: [{a: \"\\n\", b: 1 c}]}"},
  };
  for (const auto& [text, meaning] : shapes) {
    EXPECT_TRUE(read_one(text).same_as(read_one(meaning))) << text;
    expect_sources_to_stand_for(text);
  }
  for (const char* const text :
       {"x:\n- a: |\n   b: 1\n", "x:\n- |\n b\n", "- - |\n   b\n", "a: >2\n    b\n\n   c\nd: 1\n",
        "a: |\n  b\n # c\nd: 1\n", "a: |  # x\n  b\n\n# c\n", "? |\n  a\n: |\n  b\n",
        "- &x |\n  a\n", "a: !!str |\n  b\n", "a: &x\n b: |\n  c\n", "x:\n- a: |\n    b\n  c: d\n",
        "a: |2\n  \tb\n  \t\n", "a: |+\n\n\n", "- |\n  a\n- b\n"}) {
    EXPECT_EQ(read(text).size(), 1U) << text;
  }
}

TEST(ReadYaml, LosesNothingBehindQuotesInARow) {
  EXPECT_EQ(fo::yaml::as_string(read_one("'''''a'")), "''a");
  EXPECT_EQ(read_one("a: '''''''p8}'").find("a")->text(), "'''p8}");
  EXPECT_EQ(read_one("- 'b ''''c'''' d'").items().at(0).text(), "b ''c'' d");
  EXPECT_EQ(fo::yaml::as_string(read_one("'''a ''b'' c'\n")), "'a 'b' c");
  EXPECT_EQ(fo::yaml::as_string(read_one("'a\n\n   b  c\n  '\n")), "a\nb  c ");
  EXPECT_EQ(fo::yaml::as_string(read_one("''\n")), "");
}

TEST(ReadYaml, LosesNoLineOfABlockScalar) {
  EXPECT_EQ(read_one("-\n |-\n 9\n  \n  9").items().at(0).text(), "9\n \n 9");
}

TEST(ReadYaml, ADocumentMayBeABlockScalar) {
  const char* const shapes[][2] = {
      {"|\n a\n", "a\n"}, {"--- >\n a\n", "a\n"}, {"| \n#", ""}, {"--- |1\n a\n", "a\n"}};
  for (const auto& [text, value] : shapes) {
    EXPECT_EQ(fo::yaml::as_string(read_one(text)), value) << text;
    expect_sources_to_stand_for(text);
  }
  EXPECT_EQ(refusal("|\na\n"), "f:2:1: did not find expected <document start>");
}

}  // namespace
