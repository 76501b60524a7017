// A YAML or JSON value as it was written: maps keep their order, scalars their text, and everything
// its place in the input. What a scalar means is decided where it matters (scalar.h), so that what
// passes through is not reinterpreted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace fo::yaml {

/// In a file, from 1 on; 0: made here.
struct Position {
  int line = 0;
  int column = 0;
};

class Node {
 public:
  enum class Kind { kScalar, kList, kMap };
  struct Member;

  /// A null.
  Node();
  static Node string(std::string text);
  /// A scalar as it stands in a file without quotes, where "5", "on" or "" are no strings.
  static Node plain(std::string text);
  static Node integer(std::int64_t value);
  static Node boolean(bool value);
  static Node list();
  static Node list(std::vector<Node> items);
  static Node strings(const std::vector<std::string>& items);
  static Node map();
  static Node map(std::vector<Member> members);

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_map() const { return kind_ == Kind::kMap; }
  [[nodiscard]] bool is_list() const { return kind_ == Kind::kList; }
  [[nodiscard]] bool is_scalar() const { return kind_ == Kind::kScalar; }
  /// A scalar that means null (plain "", "~", "null" …); a null member is as good as none.
  [[nodiscard]] bool is_null() const;

  /// Of a scalar; "" of anything else.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Whether a scalar stood there without quotes.
  [[nodiscard]] bool is_plain() const { return plain_; }

  /// Of a list; none of anything else.
  [[nodiscard]] const std::vector<Node>& items() const { return items_; }
  [[nodiscard]] std::vector<Node>& items() { return items_; }
  /// Makes a null a list.
  Node& push_back(Node item);

  /// Of a map; none of anything else.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] std::vector<Member>& members() { return members_; }
  /// The member's value; nullptr when there is none, when it is null, or when this is no map.
  [[nodiscard]] const Node* find(std::string_view key) const;
  [[nodiscard]] Node* find(std::string_view key);
  /// The same, level after level.
  [[nodiscard]] const Node* find_path(std::initializer_list<std::string_view> keys) const;
  /// The text of what find_path finds; "" for none.
  [[nodiscard]] const std::string& text_at(std::initializer_list<std::string_view> keys) const;
  /// The member's value, which is made where there is none; makes a null a map.
  Node& operator[](std::string_view key);
  /// Replaces the member's value in its place, or appends the member. Makes a null a map.
  Node& set(std::string_view key, Node value);
  /// Whether there was one.
  bool remove(std::string_view key);
  /// Of this and all below it, those members that are null, which are as good as none.
  void drop_null_members();

  [[nodiscard]] Position position() const { return position_; }
  Node& at(Position position) {
    position_ = position;
    return *this;
  }

  /// The same data, text for text: places don't matter, nor the order of a map's members, nor
  /// quotes around what is a string without them, too.
  [[nodiscard]] bool same_as(const Node& other) const;

 private:
  explicit Node(Kind kind);

  // Of a null.
  void become(Kind kind);

  Kind kind_;
  bool plain_ = false;
  Position position_;
  std::string text_;
  std::vector<Node> items_;
  std::vector<Member> members_;
};

struct Node::Member {
  std::string key;
  Node value;
  /// The key's.
  Position position{};
  bool plain_key = false;
};

/// The entry of a list whose `key` is `name`; nullptr when there is none.
const Node* find_named(const Node* list, std::string_view key, std::string_view name);

}  // namespace fo::yaml
