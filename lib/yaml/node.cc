#include "yaml/node.h"

#include <algorithm>
#include <utility>

#include "yaml/scalar.h"

namespace fo::yaml {
namespace {

bool is_string(const Node& scalar) {
  return !scalar.is_plain() || type_of(scalar.text()) == ScalarType::kString;
}

}  // namespace

Node::Node() : Node(Kind::kScalar) { plain_ = true; }

Node::Node(Kind kind) : kind_(kind) {}

Node Node::string(std::string text) {
  Node node(Kind::kScalar);
  node.text_ = std::move(text);
  return node;
}

Node Node::plain(std::string text) {
  Node node = string(std::move(text));
  node.plain_ = true;
  return node;
}

Node Node::integer(std::int64_t value) { return plain(std::to_string(value)); }

Node Node::boolean(bool value) { return plain(value ? "true" : "false"); }

Node Node::list() { return Node(Kind::kList); }

Node Node::list(std::vector<Node> items) {
  Node node(Kind::kList);
  node.items_ = std::move(items);
  return node;
}

Node Node::strings(const std::vector<std::string>& items) {
  Node node(Kind::kList);
  for (const std::string& item : items) node.items_.push_back(string(item));
  return node;
}

Node Node::map() { return Node(Kind::kMap); }

Node Node::map(std::vector<Member> members) {
  Node node(Kind::kMap);
  node.members_ = std::move(members);
  return node;
}

bool Node::is_null() const { return is_scalar() && plain_ && type_of(text_) == ScalarType::kNull; }

void Node::become(Kind kind) {
  kind_ = kind;
  plain_ = false;
  text_.clear();
}

Node& Node::push_back(Node item) {
  if (is_null()) become(Kind::kList);
  items_.push_back(std::move(item));
  return items_.back();
}

const Node* Node::find(std::string_view key) const {
  for (const Member& member : members_) {
    if (member.key == key) return member.value.is_null() ? nullptr : &member.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).find(key));  // NOLINT: this object is not const
}

const Node* Node::find_path(std::initializer_list<std::string_view> keys) const {
  const Node* node = this;
  for (const std::string_view key : keys) {
    if (node != nullptr) node = node->find(key);
  }
  return node;
}

const std::string& Node::text_at(std::initializer_list<std::string_view> keys) const {
  static const std::string kNone;
  const Node* node = find_path(keys);
  return node == nullptr ? kNone : node->text();
}

const std::vector<Node>& Node::items_at(std::initializer_list<std::string_view> keys) const {
  static const std::vector<Node> kNone;
  const Node* node = find_path(keys);
  return node == nullptr ? kNone : node->items();
}

Node& Node::operator[](std::string_view key) {
  if (is_null()) become(Kind::kMap);
  for (Member& member : members_) {
    if (member.key == key) return member.value;
  }
  return members_.emplace_back(Member{std::string(key), Node()}).value;
}

Node& Node::set(std::string_view key, Node value) { return (*this)[key] = std::move(value); }

bool Node::remove(std::string_view key) {
  return std::erase_if(members_, [&](const Member& member) { return member.key == key; }) > 0;
}

void Node::drop_null_members() {
  std::erase_if(members_, [](const Member& member) { return member.value.is_null(); });
  for (Member& member : members_) member.value.drop_null_members();
  for (Node& item : items_) item.drop_null_members();
}

bool Node::same_as(const Node& other) const {
  if (is_null() || other.is_null()) return is_null() && other.is_null();
  if (kind_ != other.kind_ || text_ != other.text_ || is_string(*this) != is_string(other) ||
      items_.size() != other.items_.size() || members_.size() != other.members_.size()) {
    return false;
  }
  for (std::size_t i = 0; i < items_.size(); ++i) {
    if (!items_[i].same_as(other.items_[i])) return false;
  }
  return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    const auto found = std::find_if(other.members_.begin(), other.members_.end(),
                                    [&](const Member& one) { return one.key == member.key; });
    return found != other.members_.end() && member.value.same_as(found->value);
  });
}

const Node* find_named(const Node* list, std::string_view key, std::string_view name) {
  if (list == nullptr) return nullptr;
  const auto found = std::find_if(list->items().begin(), list->items().end(), [&](const Node& one) {
    const Node* value = one.find(key);
    return value != nullptr && value->text() == name;
  });
  return found == list->items().end() ? nullptr : &*found;
}

}  // namespace fo::yaml
