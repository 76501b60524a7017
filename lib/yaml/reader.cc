#include "yaml/reader.h"

#include <fmt/format.h>
#include <libfyaml.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "yaml/check.h"
#include "yaml/scalar.h"

namespace fo::yaml {
namespace {

constexpr std::string_view kCoreTags = "tag:yaml.org,2002:";

struct ParserDeleter {
  void operator()(fy_parser* parser) const { fy_parser_destroy(parser); }
};
struct DiagnosticsDeleter {
  void operator()(fy_diag* diagnostics) const { fy_diag_destroy(diagnostics); }
};
struct EventDeleter {
  fy_parser* parser;
  void operator()(fy_event* event) const { fy_parser_event_free(parser, event); }
};
using Event = std::unique_ptr<fy_event, EventDeleter>;

// libfyaml's own parser over one text, which has to outlive it.
class Parser {
 public:
  explicit Parser(std::string_view text) {
    fy_diag_cfg diagnostics{};
    fy_diag_cfg_default(&diagnostics);
    // What it prints nowhere is collected all the same.
    diagnostics.fp = nullptr;
    diagnostics.output_fn = [](fy_diag*, void*, const char*, std::size_t) {};
    diagnostics.level = FYET_ERROR;
    diagnostics_.reset(fy_diag_create(&diagnostics));
    if (!diagnostics_) throw std::bad_alloc();
    fy_diag_set_collect_errors(diagnostics_.get(), true);
    fy_parse_cfg config{};
    // Within brackets and quotes, kubectl and most others don't look at indentation.
    // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): C has them as bits
    config.flags = static_cast<fy_parse_cfg_flags>(
        FYPCF_QUIET | FYPCF_JSON_NONE | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_SLOPPY_FLOW_INDENTATION);
    config.diag = diagnostics_.get();
    parser_.reset(fy_parser_create(&config));
    if (!parser_ || fy_parser_set_string(parser_.get(), text.data(), text.size()) != 0) {
      throw std::bad_alloc();
    }
  }

  // None at the end, and where the text is no YAML.
  Event next() { return {fy_parser_parse(parser_.get()), EventDeleter{parser_.get()}}; }

  struct Failure {
    Position position;
    std::string reason;
  };
  std::optional<Failure> failure() {
    void* at = nullptr;
    if (const fy_diag_error* error = fy_diag_errors_iterate(diagnostics_.get(), &at)) {
      return Failure{.position = {.line = error->line, .column = error->column},
                     .reason = error->msg};
    }
    if (fy_parser_get_stream_error(parser_.get())) {
      return Failure{.position = {.line = 1, .column = 1}, .reason = "not YAML"};
    }
    return std::nullopt;
  }

 private:
  std::unique_ptr<fy_diag, DiagnosticsDeleter> diagnostics_;
  std::unique_ptr<fy_parser, ParserDeleter> parser_;
};

std::string text_of(fy_token* token) {
  std::size_t size = 0;
  const char* text = token == nullptr ? nullptr : fy_token_get_text(token, &size);
  return text == nullptr ? std::string() : std::string(text, size);
}

// Whether an escaped blank stands at the end of a line: libfyaml 0.7 gets the text wrong then, and
// its size.
bool ends_a_line_in_an_escape(std::string_view raw) {
  bool escaped = false;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const bool is_escape = raw[i] == '\\' && i + 1 < raw.size();
    if (is_escape) ++i;
    const bool is_blank = raw[i] == ' ' || raw[i] == '\t';
    if (raw[i] == '\n' && escaped && !is_escape) return true;
    if (raw[i] == '\r' && !is_escape) continue;
    escaped = is_blank && (is_escape || escaped);
  }
  return false;
}

// Whether a scalar in single quotes, between which `raw` stands, was read as what it is, blanks
// apart: libfyaml 0.7 loses what follows several quotes in a row.
bool is_single_quoted(std::string_view text, std::string_view raw) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::size_t next = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (kBlanks.find(raw[i]) != std::string_view::npos) continue;
    // Each is written as two.
    if (raw[i] == '\'') ++i;
    next = text.find_first_not_of(kBlanks, next);
    if (next == std::string_view::npos || i == raw.size() || text[next] != raw[i]) return false;
    ++next;
  }
  return text.find_first_not_of(kBlanks, next) == std::string_view::npos;
}

// The bytes of each document.
class Sources {
 public:
  explicit Sources(std::string_view text) : text_(text) {}

  // Of a document whose "---" is at `marker`; what was before ends there.
  void begin_at_marker(std::size_t marker) {
    end_at(marker);
    take_lines_before(marker);
    const std::size_t behind = marker + 3;
    const std::size_t line_end = end_of_line(behind);
    const std::size_t content = text_.find_first_not_of(" \t\r\n", behind);
    const bool has_content =
        content != std::string_view::npos && content < line_end && text_[content] != '#';
    // At the beginning of a line, unless it would be a marker there.
    from_ = has_content ? content : line_end;
    const std::string_view first = text_.substr(from_);
    if (has_content && (first.starts_with("---") || first.starts_with("..."))) current_ += ' ';
    open_ = true;
  }

  // Of a document that just begins, the first of its content at `content`.
  void begin_at_content(std::size_t content) {
    // Nothing else stands on its line.
    const std::size_t line = content == 0 ? 0 : text_.rfind('\n', content - 1) + 1;
    take_lines_before(line);
    from_ = std::max(line, gap_);
    open_ = true;
  }

  // At a "...", on the first line that begins so behind the content, which ends at `content`.
  void end_at_marker(std::size_t content) {
    std::size_t line = content;
    if (line > 0 && text_[line - 1] != '\n') line = end_of_line(line);
    while (line < text_.size() && !text_.substr(line).starts_with("...")) line = end_of_line(line);
    end_at(line);
    gap_ = end_of_line(line);
  }

  // Of the last document, unless that is done.
  void end_at(std::size_t end) {
    if (!open_) return;
    open_ = false;
    current_ += text_.substr(from_, end - from_);
    gap_ = end;
    if (target_ != nullptr) *target_ = std::move(current_);
    target_ = nullptr;
    current_.clear();
  }

  // Where the current document's is to go; one without a place is dropped.
  void goes_to(std::string* target) { target_ = target; }

 private:
  [[nodiscard]] std::size_t end_of_line(std::size_t from) const {
    const std::size_t at = text_.find('\n', from);
    return at == std::string_view::npos ? text_.size() : at + 1;
  }

  // Comments in front of a document are its own; directives and the marks of ends are not.
  void take_lines_before(std::size_t end) {
    std::string lines;
    while (gap_ < end) {
      const std::size_t next = std::min(end_of_line(gap_), end);
      const std::string_view line = text_.substr(gap_, next - gap_);
      if (!line.starts_with('%') && !line.starts_with("...")) lines += line;
      gap_ = next;
    }
    current_ = std::move(lines);
  }

  std::string_view text_;
  // Where what belongs to no document yet begins.
  std::size_t gap_ = 0;
  bool open_ = false;
  std::size_t from_ = 0;
  std::string current_;
  std::string* target_ = nullptr;
};

// What a node holds, itself and its keys included.
struct Weight {
  std::size_t nodes = 1;
  std::size_t bytes = 0;
  // Lists and maps in each other.
  std::size_t depth = 0;
};

class Reader {
 public:
  // `text` ends with a newline; `has_no_end`: the file has none there.
  Reader(std::string_view text, bool has_no_end, const std::string& file, const ReadLimits& limits)
      : text_(text), file_(file), limits_(limits), sources_(text), has_no_end_(has_no_end) {}

  std::vector<Document> read() {
    Parser parser(text_);
    while (const Event event = parser.next()) take(*event);
    if (const auto failure = parser.failure()) fail_at_text(failure->position, failure->reason);
    sources_.end_at(text_.size());
    // Nothing behind it may give its text a newline more.
    if (edit_) {
      std::string& source = documents_.back()->source;
      source.replace(source.size() - edit_->from_end, edit_->size, edit_->text);
    }
    std::vector<Document> documents;
    for (std::unique_ptr<Document>& document : documents_) {
      documents.push_back(std::move(*document));
    }
    return documents;
  }

 private:
  struct Anchor {
    // Of the node that has it; an anchor may be given twice.
    std::size_t id = 0;
    // None while the node is not yet at its end.
    std::optional<Node> node;
    Weight weight;
  };

  struct Edit {
    std::size_t from_end = 0;
    std::size_t size = 0;
    std::string_view text;
  };

  struct Properties {
    Position position;
    std::string anchor;
    std::string tag;
  };

  // A list or map that has begun.
  struct Frame {
    Node node;
    Weight weight;
    Properties properties;
    std::size_t anchor_id = 0;
    // Of a map: its keys, as text and as JSON has them; the key whose value is to come; what it
    // merges, and where.
    std::unordered_set<std::string> keys;
    std::optional<Node::Member> key;
    std::vector<Node> merged;
    std::size_t merge_at = 0;
  };

  [[noreturn]] void fail(Position position, const std::string& reason) const {
    refuse_yaml(file_, position, reason);
  }

  // Of what is no YAML, or none that is read, as templates are.
  [[noreturn]] void fail_at_text(Position position, const std::string& reason) const {
    fail(position, reason + template_hint(text_, position));
  }

  void refuse_key(Position position) const { fail_at_text(position, "a key that is not a scalar"); }

  // What takes no place itself, as an empty value does, is where the last thing was.
  Position position_of(const fy_mark* mark) {
    if (mark != nullptr && (mark->line > 0 || mark->column > 0 || mark->input_pos > 0 || !seen_)) {
      last_ = {.line = mark->line + 1, .column = mark->column + 1};
      seen_ = true;
    }
    return last_;
  }

  Properties properties_of(fy_event& event) {
    return {.position = position_of(fy_event_start_mark(&event)),
            .anchor = text_of(fy_event_get_anchor_token(&event)),
            .tag = text_of(fy_event_get_tag_token(&event))};
  }

  // Where it begins, with its anchor and tag, of which alone a document may consist.
  static std::size_t content_of(fy_event& event) {
    const auto start_of = [](fy_token* token) {
      return token == nullptr ? nullptr : fy_token_start_mark(token);
    };
    std::size_t begin = std::string_view::npos;
    for (const fy_mark* mark :
         {fy_event_start_mark(&event), start_of(fy_event_get_anchor_token(&event)),
          start_of(fy_event_get_tag_token(&event))}) {
      if (mark != nullptr) begin = std::min(begin, mark->input_pos);
    }
    return begin == std::string_view::npos ? 0 : begin;
  }

  void take(fy_event& event) {
    if (starts_bare_ && event.type != FYET_DOCUMENT_START) {
      const std::size_t content = content_of(event);
      sources_.begin_at_content(content);
      // Of an anchor alone the event tells no end.
      content_end_ = std::max(content_end_, content);
      starts_bare_ = false;
    }
    if (const fy_mark* mark = fy_event_end_mark(&event)) {
      content_end_ = std::max(content_end_, mark->input_pos);
    }
    switch (event.type) {
      case FYET_NONE:
      case FYET_STREAM_START:
      case FYET_STREAM_END:
        break;
      case FYET_DOCUMENT_START:
        start_document(event.document_start.document_start);
        break;
      case FYET_DOCUMENT_END:
        end_document(!event.document_end.implicit);
        break;
      case FYET_MAPPING_START:
        start(Node::map(), properties_of(event), "map");
        break;
      case FYET_SEQUENCE_START:
        start(Node::list(), properties_of(event), "seq");
        break;
      case FYET_MAPPING_END:
      case FYET_SEQUENCE_END:
        end();
        break;
      case FYET_SCALAR:
        scalar(event);
        break;
      case FYET_ALIAS:
        alias(event);
        break;
    }
  }

  void start_document(fy_token* marker) {
    anchors_.clear();
    root_ = Node();
    const fy_mark* mark = marker == nullptr ? nullptr : fy_token_start_mark(marker);
    if (++document_count_ > limits_.documents) {
      fail(position_of(mark), fmt::format("more than {} documents", limits_.documents));
    }
    starts_bare_ = mark == nullptr;
    if (mark != nullptr) {
      position_of(mark);
      sources_.begin_at_marker(mark->input_pos);
      content_end_ = std::max(content_end_, mark->input_pos);
    }
  }

  void end_document(bool by_marker) {
    if (!root_.is_null()) {
      documents_.push_back(std::make_unique<Document>());
      documents_.back()->root = std::move(root_);
      sources_.goes_to(&documents_.back()->source);
    }
    root_ = Node();
    if (by_marker) sources_.end_at_marker(content_end_);
  }

  void start(Node node, Properties properties, std::string_view type) {
    if (stack_.size() >= limits_.depth) {
      fail(properties.position, fmt::format("more than {} nested lists and maps", limits_.depth));
    }
    if (wants_key()) refuse_key(properties.position);
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

  void scalar(fy_event& event) {
    Properties properties = properties_of(event);
    fy_token* token = event.scalar.value;
    const fy_scalar_style style = token == nullptr ? FYSS_PLAIN : fy_token_scalar_style(token);
    const bool plain = style == FYSS_PLAIN;
    // Its place is said to be behind the quote.
    if (style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) --properties.position.column;
    const fy_mark* begin = fy_event_start_mark(&event);
    const fy_mark* end = fy_event_end_mark(&event);
    if (style == FYSS_DOUBLE_QUOTED && begin != nullptr && end != nullptr &&
        ends_a_line_in_an_escape(
            text_.substr(begin->input_pos, end->input_pos - begin->input_pos))) {
      fail(properties.position, "an escaped blank at the end of a line");
    }
    std::string text = text_of(token);
    if (style == FYSS_SINGLE_QUOTED && begin != nullptr && end != nullptr &&
        !is_single_quoted(text,
                          text_.substr(begin->input_pos, end->input_pos - begin->input_pos))) {
      fail(properties.position, "unreadable quotes; use double quotes");
    }
    const bool is_block = style == FYSS_LITERAL || style == FYSS_FOLDED;
    // libfyaml 0.7 misreads them where nothing says how far they are indented.
    if (is_block && stack_.empty()) {
      fail(properties.position, "a document that is a block scalar; use double quotes");
    }
    // With nothing behind its header, libfyaml 0.7 makes up a blank.
    if (is_block && begin != nullptr && end != nullptr && begin->input_pos == end->input_pos) {
      text.clear();
    }
    if (is_block && begin != nullptr && !is_all_of(text, begin->input_pos)) {
      fail(properties.position, "an unreadable block scalar; use double quotes");
    }
    if (is_block && has_no_end_ && begin != nullptr && end != nullptr &&
        end->input_pos == text_.size()) {
      cut_added_newline(text, begin->input_pos);
    }
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

  // Whether a block scalar's text is what stands there, blanks apart. libfyaml 0.7 takes a list
  // item's next key for the text of an empty one, loses lines behind blank ones, and may run past
  // the end. `content`: where it begins.
  [[nodiscard]] bool is_all_of(std::string_view text, std::size_t content) const {
    constexpr std::string_view kBlanks = " \t\r\n";
    const Frame& parent = stack_.back();
    // Its place is the anchor's or the tag's then.
    if (!parent.properties.anchor.empty() || !parent.properties.tag.empty()) return true;
    const auto least = static_cast<std::size_t>(parent.node.position().column);
    std::string_view left = text_.substr(content == 0 ? 0 : text_.rfind('\n', content - 1) + 1);
    // Of its first line: a comment in front of that ends it.
    std::size_t first = 0;
    std::size_t next = 0;
    while (!left.empty()) {
      const std::string_view line = left.substr(0, left.find('\n'));
      const std::size_t indentation = line.find_first_not_of(' ');
      const bool is_blank = line.find_first_not_of(kBlanks) == std::string_view::npos;
      if (!is_blank && indentation < std::max(least, line[indentation] == '#' ? first : 0)) break;
      if (!is_blank && first == 0) first = indentation;
      for (const char c : line) {
        if (kBlanks.find(c) != std::string_view::npos) continue;
        next = text.find_first_not_of(kBlanks, next);
        if (next == std::string_view::npos || text[next] != c) return false;
        ++next;
      }
      left.remove_prefix(std::min(line.size() + 1, left.size()));
    }
    return text.find_first_not_of(kBlanks, next) == std::string_view::npos;
  }

  // Of a block scalar at the end of a text whose last line had no newline: then it has none, too,
  // unless that line is nothing but the scalar's indentation. `content`: where it begins.
  void cut_added_newline(std::string& text, std::size_t content) {
    if (!text.ends_with('\n')) return;
    std::string_view raw = text_.substr(0, text_.size() - 1);
    raw.remove_prefix(raw.rfind('\n') + 1);
    std::string_view line(text.data(), text.size() - 1);
    const bool is_line_over = line.empty() || line.ends_with('\n');
    line.remove_prefix(line.rfind('\n') + 1);
    const bool is_blank = raw.find_first_not_of(" \t\r") == std::string_view::npos;
    if (is_blank && !is_line_over && !raw.ends_with(line)) return;
    if (is_line_over) {
      // A blank line that the scalar keeps.
      if (!is_blank || (text != "\n" && !text.ends_with("\n\n"))) return;
      edit_ = {.from_end = raw.size() + 1, .size = raw.size() + 1, .text = ""};
    } else if (!chomp(text_.substr(0, content))) {
      return;
    }
    text.pop_back();
  }

  // Has the source say "|-" at the end of this, the scalar's header; not where a comment follows.
  bool chomp(std::string_view header) {
    const std::size_t end = header.find_last_not_of(" \t\r\n") + 1;
    header = header.substr(0, end);
    const std::size_t mark = header.find_last_not_of("0123456789+-");
    if (mark == std::string_view::npos || (header[mark] != '|' && header[mark] != '>') ||
        header.substr(header.rfind('\n') + 1).find('#') != std::string_view::npos) {
      return false;
    }
    const std::size_t plus = header.find('+', mark);
    const bool has_plus = plus != std::string_view::npos;
    edit_ = {.from_end = text_.size() - (has_plus ? plus : end),
             .size = has_plus ? std::size_t{1} : 0,
             .text = "-"};
    return true;
  }

  void alias(fy_event& event) {
    Position position = position_of(fy_event_start_mark(&event));
    // Of its "*".
    --position.column;
    const std::string name = text_of(event.alias.anchor);
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
    if (wants_key() && !anchor.node->is_scalar()) refuse_key(position);
    complete(*anchor.node, anchor.weight);
  }

  // Before anything is made: `nodes` more, and `bytes` of text that was there before.
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

  [[nodiscard]] bool wants_key() const {
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

  // Whether the map has no such key yet, whether it is compared as text or as JSON has it.
  static bool add_key(Frame& frame, const Node::Member& member) {
    const bool is_new = frame.keys.insert(member.key).second;
    if (!member.plain_key || type_of(member.key) == ScalarType::kString) return is_new;
    const std::string json = to_json_key(member);
    // The text itself may be what JSON has.
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

  // What a map says itself counts for more than what it merges, and an earlier one of these for
  // more than a later one.
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

  // A scalar with what its tag makes of it.
  Node tagged(std::string text, bool plain, const Properties& properties) const {
    if (properties.tag.empty())
      return plain ? Node::plain(std::move(text)) : Node::string(std::move(text));
    // As if there were neither tag nor quotes.
    if (properties.tag == "!") return Node::plain(std::move(text));
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
  // Each where it stays while Sources knows of it.
  std::vector<std::unique_ptr<Document>> documents_;
  std::size_t document_count_ = 0;
  std::size_t nodes_ = 0;
  std::size_t copied_ = 0;
  std::vector<Frame> stack_;
  std::map<std::string, Anchor> anchors_;
  std::size_t anchor_ids_ = 0;
  Node root_;
  // A document without "---" has begun, and nothing of it was seen.
  bool starts_bare_ = false;
  std::size_t content_end_ = 0;
  Position last_{.line = 1, .column = 1};
  bool seen_ = false;
  // The text's last newline was not in the file.
  bool has_no_end_;
  // Of the last source, whose last text ends without one.
  std::optional<Edit> edit_;
};

// Without those at the beginning, and of a line behind "---", as files joined into one have them.
std::string without_byte_order_marks(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  std::string out;
  std::size_t line = 0;
  bool may_be_there = true;
  while (line < text.size()) {
    const std::size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
    std::string_view whole = text.substr(line, end - line);
    if (may_be_there && whole.starts_with(kMark)) whole.remove_prefix(kMark.size());
    may_be_there = whole.starts_with("---");
    out += whole;
    line = end;
  }
  return out;
}

}  // namespace

std::vector<Document> read_yaml(std::string_view text, const std::string& file,
                                const ReadLimits& limits) {
  if (text.size() > limits.bytes) {
    refuse_yaml(file, {.line = 1, .column = 1}, fmt::format("more than {} bytes", limits.bytes));
  }
  std::string whole = without_byte_order_marks(text);
  check_yaml(whole, file);
  const bool has_no_end = !whole.ends_with('\n');
  if (has_no_end) whole += '\n';
  return Reader(whole, has_no_end, file, limits).read();
}

}  // namespace fo::yaml
