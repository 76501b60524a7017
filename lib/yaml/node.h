// A YAML or JSON value as it is in its source: maps keep their order, scalars their text, and all
// nodes their position. Scalars are interpreted only when they are used (scalar.h), so that data
// that is only copied does not change.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace fo::yaml {

/// A position in a file, counted from 1; 0 for nodes without a source.
struct Position {
  int line = 0;
  int column = 0;
};

class Node {
 public:
  enum class Kind { kScalar, kList, kMap };
  struct Member;

  /// Creates a null.
  Node();
  static Node string(std::string text);
  /// A scalar without quotes, so that "5", "on" and "" are not strings.
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
  /// True for a scalar that means null (plain "", "~", "null" …). A null member counts as missing.
  [[nodiscard]] bool is_null() const;

  /// The text of a scalar; "" for other nodes.
  [[nodiscard]] const std::string& text() const { return text_; }
  /// True for a scalar without quotes in the source.
  [[nodiscard]] bool is_plain() const { return plain_; }

  /// The items of a list; empty for other nodes.
  [[nodiscard]] const std::vector<Node>& items() const { return items_; }
  [[nodiscard]] std::vector<Node>& items() { return items_; }
  /// Appends an item. A null becomes a list first.
  Node& push_back(Node item);

  /// The members of a map; empty for other nodes.
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] std::vector<Member>& members() { return members_; }
  /// The value of a member; nullptr if it is missing or null, or if this is not a map.
  [[nodiscard]] const Node* find(std::string_view key) const;
  [[nodiscard]] Node* find(std::string_view key);
  /// The value at a path of keys; nullptr as for find().
  [[nodiscard]] const Node* find_path(std::initializer_list<std::string_view> keys) const;
  /// The text of the value at a path; "" if it is missing.
  [[nodiscard]] const std::string& text_at(std::initializer_list<std::string_view> keys) const;
  /// The items of the list at a path; empty if it is missing.
  [[nodiscard]] const std::vector<Node>& items_at(
      std::initializer_list<std::string_view> keys) const;
  /// The value of a member, which is created if it is missing; a null becomes a map.
  Node& operator[](std::string_view key);
  /// Replaces the member's value in place, or appends the member; a null becomes a map.
  Node& set(std::string_view key, Node value);
  /// Returns whether the member existed.
  bool remove(std::string_view key);
  /// Removes all members that are null, at every level.
  void drop_null_members();

  [[nodiscard]] Position position() const { return position_; }
  Node& at(Position position) {
    position_ = position;
    return *this;
  }

  /// Whether the data is the same, compared as text. Positions, the order of a map's members, and
  /// quotes around a text that is a string without them are ignored.
  [[nodiscard]] bool same_as(const Node& other) const;

 private:
  explicit Node(Kind kind);

  // Changes a null to a node of this kind.
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
  /// Position of the key.
  Position position{};
  bool plain_key = false;
};

/// The first item of `list` whose member `key` is `name`; nullptr if there is none, or if `list` is
/// nullptr.
const Node* find_named(const Node* list, std::string_view key, std::string_view name);

}  // namespace fo::yaml
