#include "yaml/writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "yaml/scalar.h"

namespace {

using fo::yaml::Node;
using fo::yaml::to_json;
using fo::yaml::to_yaml;

Node sample() {
  Node pod;
  pod["kind"] = Node::string("Pod");
  Node container =
      Node::map({{"name", Node::string("main")}, {"args", Node::strings({"--model", "a b"})}});
  container["ports"].push_back(Node::map({{"containerPort", Node::integer(9090)}}));
  pod["spec"]["containers"].push_back(std::move(container));
  pod["spec"]["emptyDir"] = Node::map();
  pod["spec"]["tolerations"] = Node::list();
  pod["spec"]["nothing"] = Node();
  return pod;
}

TEST(ToYaml, IsStyledAsKubectlDoes) {
  EXPECT_EQ(to_yaml(sample()),
            "kind: Pod\n"
            "spec:\n"
            "  containers:\n"
            "  - name: main\n"
            "    args:\n"
            "    - --model\n"
            "    - a b\n"
            "    ports:\n"
            "    - containerPort: 9090\n"
            "  emptyDir: {}\n"
            "  tolerations: []\n"
            "  nothing: null\n");
}

TEST(ToYaml, WritesRootsOfEveryKind) {
  EXPECT_EQ(to_yaml(Node::map()), "{}\n");
  EXPECT_EQ(to_yaml(Node::map({{"a", Node()}})), "a: null\n");
  EXPECT_EQ(to_yaml(Node::list()), "[]\n");
  EXPECT_EQ(to_yaml(Node()), "null\n");
  EXPECT_EQ(to_yaml(Node::string("a\nb\n")), "\"a\\nb\\n\"\n");
  EXPECT_EQ(to_yaml(Node::strings({"a"})), "- a\n");
}

TEST(ToYaml, ANullItemStays) {
  EXPECT_EQ(to_yaml(Node::list({Node(), Node::plain("~"), Node::map({{"a", Node()}})})),
            "- null\n- ~\n- a: null\n");
}

TEST(ToYaml, NestsListsInLists) {
  EXPECT_EQ(to_yaml(Node::list({Node::strings({"a", "b"}), Node::list({Node::strings({"c"})})})),
            "- - a\n  - b\n- - - c\n");
}

TEST(ToYaml, QuotesStringsThatReadAsSomethingElse) {
  for (const char* text : {"5", "on", "n", "0644", "1e3", "null", "~", "2001-12-14", "", "12:30"}) {
    EXPECT_EQ(to_yaml(Node::map({{"a", Node::string(text)}})),
              "a: \"" + std::string(text) + "\"\n");
    EXPECT_EQ(to_yaml(Node::map({{"a", Node::plain(text)}})),
              "a: " + std::string(*text == '\0' ? "null" : text) + "\n");
  }
}

TEST(ToYaml, QuotesKeysByTheSameRules) {
  const Node map = Node::map({{"on", Node::integer(1)},
                              {"off", Node::integer(2), {}, true},
                              {"a: b", Node::integer(3)},
                              {"a\nb", Node::integer(4)},
                              {"<<", Node::integer(5)}});
  EXPECT_EQ(to_yaml(map), "\"on\": 1\noff: 2\n\"a: b\": 3\n\"a\\nb\": 4\n\"<<\": 5\n");
}

TEST(ToYaml, MarksLongKeys) {
  const std::string key(1001, 'k');
  EXPECT_EQ(to_yaml(Node::map({{key, Node::strings({"a", "b"})}, {"b", Node::integer(1)}})),
            "? " + key + "\n: - a\n  - b\nb: 1\n");
  EXPECT_EQ(to_yaml(Node::map({{key, Node::string("a\nb")}})), "? " + key + "\n: |-\n  a\n  b\n");
}

TEST(ToYaml, WritesLinesAsABlock) {
  const auto block = [](const std::string& text) {
    return to_yaml(Node::map({{"a", Node::string(text)}}));
  };
  EXPECT_EQ(block("x\ny\n"), "a: |\n  x\n  y\n");
  EXPECT_EQ(block("x\ny"), "a: |-\n  x\n  y\n");
  EXPECT_EQ(block("x\n\n\n"), "a: |+\n  x\n\n\n");
  EXPECT_EQ(block("x\n\n  y \n"), "a: |\n  x\n\n    y \n");
  EXPECT_EQ(block(" x\ny\n"), "a: |2\n   x\n  y\n");
  EXPECT_EQ(block("\nx"), "a: |2-\n\n  x\n");
  EXPECT_EQ(block("---\n...\n# x\n"), "a: |\n  ---\n  ...\n  # x\n");
}

TEST(ToYaml, QuotesLinesThatABlockCantHold) {
  for (const char* text : {"\n", "\n\n", "a\rb\n", "a\x01\n", "a\xc2\x85\n", "a\xe2\x80\xa8\n",
                           "\xef\xbb\xbf\n", "  \na", "a\n  ", "a\n\t\n", "a\x7f\n"}) {
    EXPECT_EQ(to_yaml(Node::map({{"a", Node::string(text)}})),
              "a: " + fo::yaml::double_quoted(text) + "\n");
  }
}

TEST(ToYaml, BlocksInListsAreIndentedFromTheirDash) {
  EXPECT_EQ(to_yaml(Node::map({{"a", Node::list({Node::string(" x\ny"), Node::strings({"u\nv\n"}),
                                                 Node::map({{"k", Node::string(" s\n")}})})}})),
            "a:\n- |2-\n   x\n  y\n- - |\n    u\n    v\n- k: |2\n     s\n");
}

TEST(ToYaml, APlainScalarThatCantStandSoBecomesAString) {
  EXPECT_EQ(to_yaml(Node::map({{"a", Node::plain("x: y")}})), "a: \"x: y\"\n");
  EXPECT_EQ(to_yaml(Node::map({{"a", Node::plain("x\ny")}})), "a: |-\n  x\n  y\n");
  EXPECT_EQ(to_yaml(Node::map({{"a", Node::plain("2001-1-1 1:9:4\ny")}})),
            "a: |-\n  2001-1-1 1:9:4\n  y\n");
}

TEST(ToJson, IsIndented) {
  EXPECT_EQ(to_json(sample()), R"({
  "kind": "Pod",
  "spec": {
    "containers": [
      {
        "name": "main",
        "args": [
          "--model",
          "a b"
        ],
        "ports": [
          {
            "containerPort": 9090
          }
        ]
      }
    ],
    "emptyDir": {},
    "tolerations": [],
    "nothing": null
  }
}
)");
  EXPECT_EQ(to_json(Node::list({Node(), Node::map({{"a", Node()}})})),
            "[\n  null,\n  {\n    \"a\": null\n  }\n]\n");
}

TEST(ToJson, SaysWhatAScalarMeans) {
  const Node map =
      Node::map({{"on", Node::plain("0644"), {}, true}, {"b", Node::string("ü\n\x01")}});
  EXPECT_EQ(to_json(map), "{\n  \"true\": 420,\n  \"b\": \"ü\\n\\u0001\"\n}\n");
}

}  // namespace
