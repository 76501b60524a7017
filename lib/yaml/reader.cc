#include "yaml/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "yaml/check.h"
#include "yaml/input.h"
#include "yaml/parser.h"
#include "yaml/scalar.h"
#include "yaml/sources.h"

namespace fo::yaml {
namespace {

constexpr std::string_view kCoreTags = "tag:yaml.org,2002:";

std::string text_of(const yaml_char_t* text) {
  return text == nullptr ? std::string() : reinterpret_cast<const char*>(text);
}

// The size of a node, including the node itself and its keys.
struct Weight {
  std::size_t nodes = 1;
  std::size_t bytes = 0;
  // Nesting of lists and maps.
  std::size_t depth = 0;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file, const ReadLimits& limits)
      : text_(text), file_(file), limits_(limits), sources_(text) {}

  std::vector<Document> read() {
    Parser parser(text_, file_);
    while (take(parser.next())) {
    }
    if (!documents_.empty() && !documents_.back().source.ends_with('\n')) {
      end_with_newline(documents_.back().source, text_, last_block_);
    }
    return std::move(documents_);
  }

 private:
  struct Anchor {
    // Identifies the node with the anchor, because an anchor may be defined again.
    std::size_t id = 0;
    // nullopt until the node is complete.
    std::optional<Node> node;
    Weight weight;
  };

  struct Properties {
    Position position;
    std::string anchor;
    std::string tag;
  };

  // An incomplete list or map.
  struct Frame {
    Node node;
    Weight weight;
    Properties properties;
    std::size_t anchor_id = 0;
    // For a map: its keys, both as text and in their JSON form; the key whose value is read next;
    // the maps to merge, and the index at which their members are inserted.
    std::unordered_set<std::string> keys;
    std::optional<Node::Member> key;
    std::vector<Node> merged;
    std::size_t merge_at = 0;
  };

  [[noreturn]] void fail(Position position, const std::string& reason) const {
    refuse_yaml(file_, position, reason);
  }

  // Like fail(), for errors that a template may have caused: malformed YAML and unsupported
  // features.
  [[noreturn]] void fail_at_text(Position position, const std::string& reason) const {
    fail(position, reason + template_hint(text_, position));
  }

  void refuse_key(Position position) const { fail_at_text(position, "a key that is not a scalar"); }

  // Handles an event; returns false at the end of the stream.
  bool take(const yaml_event_t& event) {
    const Position position = position_of(event.start_mark);
    const auto& data = event.data;
    switch (event.type) {
      case YAML_NO_EVENT:
      case YAML_STREAM_START_EVENT:
        break;
      case YAML_STREAM_END_EVENT:
        return false;
      case YAML_DOCUMENT_START_EVENT:
        start_document(event);
        break;
      case YAML_DOCUMENT_END_EVENT:
        end_document(position.line, data.document_end.implicit == 0);
        break;
      case YAML_MAPPING_START_EVENT:
        start(Node::map(),
              {position, text_of(data.mapping_start.anchor), text_of(data.mapping_start.tag)},
              "map");
        break;
      case YAML_SEQUENCE_START_EVENT:
        start(Node::list(),
              {position, text_of(data.sequence_start.anchor), text_of(data.sequence_start.tag)},
              "seq");
        break;
      case YAML_MAPPING_END_EVENT:
      case YAML_SEQUENCE_END_EVENT:
        end();
        break;
      case YAML_SCALAR_EVENT:
        scalar(event, {position, text_of(data.scalar.anchor), text_of(data.scalar.tag)});
        break;
      case YAML_ALIAS_EVENT:
        alias(text_of(data.alias.anchor), position);
        break;
    }
    return true;
  }

  void start_document(const yaml_event_t& event) {
    const auto& document = event.data.document_start;
    // The position of the first directive, if there is one.
    const Position position = position_of(event.start_mark);
    if (++document_count_ > limits_.documents) {
      fail(position, fmt::format("more than {} documents", limits_.documents));
    }
    if (document.tag_directives.start != document.tag_directives.end) {
      fail(position, "a directive: only %YAML is supported");
    }
    anchors_.clear();
    if (document.implicit == 0) sources_.begin_at_marker(position_of(event.end_mark).line);
  }

  void end_document(int line, bool has_marker) {
    std::string source = sources_.end_before(line);
    if (has_marker) sources_.skip_line();
    if (!root_.is_null()) documents_.push_back({std::move(root_), std::move(source)});
    root_ = Node();
  }

  void start(Node node, Properties properties, std::string_view type) {
    if (stack_.size() >= limits_.depth) {
      fail(properties.position, fmt::format("more than {} nested lists and maps", limits_.depth));
    }
    if (expects_key()) refuse_key(properties.position);
    check_tag_of_collection(properties, type);
    count(1, 0, properties.position);
    Frame frame;
    frame.node = std::move(node.at(properties.position));
    frame.weight.depth = 1;
    if (!properties.anchor.empty()) {
      frame.anchor_id = ++anchor_ids_;
      anchors_[properties.anchor] = {.id = frame.anchor_id, .node = std::nullopt, .weight = {}};
    }
    frame.properties = std::move(properties);
    stack_.push_back(std::move(frame));
  }

  void end() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    merge(frame);
    if (frame.anchor_id != 0) {
      Anchor& anchor = anchors_[frame.properties.anchor];
      if (anchor.id == frame.anchor_id) keep(anchor, frame.node, frame.weight);
    }
    complete(std::move(frame.node), frame.weight);
  }

  void scalar(const yaml_event_t& event, const Properties& properties) {
    const auto& data = event.data.scalar;
    if (data.style == YAML_LITERAL_SCALAR_STYLE || data.style == YAML_FOLDED_SCALAR_STYLE) {
      last_block_ = {.begin = properties.position, .end = position_of(event.end_mark)};
    }
    std::string text(reinterpret_cast<const char*>(data.value), data.length);
    const bool plain = data.style == YAML_PLAIN_SCALAR_STYLE;
    Node node = tagged(std::move(text), plain, properties);
    node.at(properties.position);
    count(1, 0, properties.position);
    const Weight weight{.nodes = 1, .bytes = node.text().size(), .depth = 0};
    if (!properties.anchor.empty()) {
      Anchor& anchor = anchors_[properties.anchor];
      anchor.id = ++anchor_ids_;
      keep(anchor, node, weight);
    }
    complete(std::move(node), weight);
  }

  void alias(const std::string& name, Position position) {
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) {
      fail(position, fmt::format("missing anchor for the alias {}", base::quoted(name)));
    }
    const Anchor& anchor = found->second;
    if (!anchor.node) {
      fail(position,
           fmt::format("the alias {} refers to a value that contains it", base::quoted(name)));
    }
    if (stack_.size() + anchor.weight.depth > limits_.depth) {
      fail(position, fmt::format("more than {} nested lists and maps", limits_.depth));
    }
    count(anchor.weight.nodes, anchor.weight.bytes, position);
    if (expects_key() && !anchor.node->is_scalar()) refuse_key(position);
    complete(*anchor.node, anchor.weight);
  }

  // Counts `nodes`, and `bytes` of copied text. It is called before the nodes are created, so that
  // the limits hold.
  void count(std::size_t nodes, std::size_t bytes, Position position) {
    nodes_ += nodes;
    copied_ += bytes;
    if (nodes_ > limits_.nodes) {
      fail(position, fmt::format("more than {} values after expansion of aliases", limits_.nodes));
    }
    if (copied_ > limits_.bytes) {
      fail(position, fmt::format("aliases that expand to more than {} bytes", limits_.bytes));
    }
  }

  void keep(Anchor& anchor, const Node& node, const Weight& weight) {
    count(weight.nodes, weight.bytes, node.position());
    anchor.node = node;
    anchor.weight = weight;
  }

  [[nodiscard]] bool expects_key() const {
    return !stack_.empty() && stack_.back().node.is_map() && !stack_.back().key;
  }

  void complete(Node node, const Weight& weight) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    frame.weight.nodes += weight.nodes;
    frame.weight.bytes += weight.bytes;
    frame.weight.depth = std::max(frame.weight.depth, weight.depth + 1);
    if (frame.node.is_list()) {
      frame.node.push_back(std::move(node));
    } else if (!frame.key) {
      take_key(frame, node);
    } else {
      take_value(frame, std::move(node));
    }
  }

  void take_key(Frame& frame, const Node& node) {
    if (node.is_null()) fail(node.position(), "a key that is null");
    Node::Member member{.key = node.text(),
                        .value = Node(),
                        .position = node.position(),
                        .plain_key = node.is_plain()};
    if (!add_key(frame, member)) {
      fail(node.position(), fmt::format("the key {} appears twice", base::quoted(node.text())));
    }
    frame.key = std::move(member);
  }

  // Adds a key; false if the map already has it, compared as text or in its JSON form.
  static bool add_key(Frame& frame, const Node::Member& member) {
    const bool is_new = frame.keys.insert(member.key).second;
    if (!member.plain_key || type_of(member.key) == ScalarType::kString) return is_new;
    const std::string json = to_json_key(member);
    // The text may be the same as its JSON form.
    const std::string as_text = json.substr(1, json.size() - 2);
    return is_new && (as_text == member.key || frame.keys.insert(as_text).second);
  }

  void take_value(Frame& frame, Node node) {
    Node::Member member = std::move(*frame.key);
    frame.key.reset();
    if (!member.plain_key || type_of(member.key) != ScalarType::kMerge) {
      member.value = std::move(node);
      frame.node.members().push_back(std::move(member));
      return;
    }
    frame.merge_at = frame.node.members().size();
    if (node.is_map()) {
      frame.merged.push_back(std::move(node));
      return;
    }
    const auto is_map = [](const Node& item) { return item.is_map(); };
    if (!node.is_list() || !std::all_of(node.items().begin(), node.items().end(), is_map)) {
      fail(member.position, "'<<' merges maps only");
    }
    frame.merged = std::move(node.items());
  }

  // A map's own members take precedence over merged ones, and earlier merged maps over later ones.
  static void merge(Frame& frame) {
    std::vector<Node::Member> added;
    for (Node& map : frame.merged) {
      for (Node::Member& member : map.members()) {
        if (add_key(frame, member)) added.push_back(std::move(member));
      }
    }
    std::vector<Node::Member>& members = frame.node.members();
    members.insert(members.begin() + static_cast<std::ptrdiff_t>(frame.merge_at),
                   std::make_move_iterator(added.begin()), std::make_move_iterator(added.end()));
  }

  void check_tag_of_collection(const Properties& properties, std::string_view type) const {
    if (properties.tag.empty() || properties.tag == "!") return;
    if (properties.tag != std::string(kCoreTags) + std::string(type)) refuse_tag(properties);
  }

  [[noreturn]] void refuse_tag(const Properties& properties) const {
    std::string tag = properties.tag;
    if (tag.starts_with(kCoreTags)) tag.replace(0, kCoreTags.size(), "!!");
    fail(properties.position, fmt::format("the tag {} does not fit this value", base::quoted(tag)));
  }

  // The scalar, interpreted according to its tag.
  Node tagged(std::string text, bool plain, const Properties& properties) const {
    if (properties.tag.empty())
      return plain ? Node::plain(std::move(text)) : Node::string(std::move(text));
    // YAML and kubectl read a scalar with the tag "!" as a string; kustomize ignores the tag.
    if (properties.tag == "!") return Node::string(std::move(text));
    if (!properties.tag.starts_with(kCoreTags)) refuse_tag(properties);
    const std::string_view name = std::string_view(properties.tag).substr(kCoreTags.size());
    if (name == "str") return Node::string(std::move(text));
    const ScalarType type = type_of(text);
    const bool fits =
        (name == "int" && type == ScalarType::kInteger) ||
        (name == "bool" && type == ScalarType::kBoolean) ||
        (name == "null" && type == ScalarType::kNull) ||
        (name == "float" && (type == ScalarType::kFloat || type == ScalarType::kInteger));
    if (!fits) refuse_tag(properties);
    return Node::plain(std::move(text));
  }

  std::string_view text_;
  const std::string& file_;
  const ReadLimits& limits_;
  Sources sources_;
  std::vector<Document> documents_;
  std::size_t document_count_ = 0;
  std::size_t nodes_ = 0;
  std::size_t copied_ = 0;
  std::vector<Frame> stack_;
  std::map<std::string, Anchor> anchors_;
  std::size_t anchor_ids_ = 0;
  Node root_;
  std::optional<BlockScalar> last_block_;
};

}  // namespace

std::vector<Document> read_yaml(std::string_view text, const std::string& file,
                                const ReadLimits& limits) {
  if (text.size() > limits.bytes) {
    refuse_yaml(file, {.line = 1, .column = 1}, fmt::format("more than {} bytes", limits.bytes));
  }
  std::string whole = without_byte_order_marks(text);
  check_yaml(whole, file);
  whole = without_surrogates(std::move(whole));
  return Reader(whole, file, limits).read();
}

}  // namespace fo::yaml
