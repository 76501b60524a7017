#include "yaml/writer.h"

#include <algorithm>
#include <string_view>

#include "yaml/scalar.h"

namespace fo::yaml {
namespace {

constexpr std::size_t kStep = 2;
// A longer key must be marked with "?": readers search only 1024 characters for its colon.
constexpr std::size_t kMaxKeyBytes = 1000;

bool is_blank_line(std::string_view line) {
  return !line.empty() && line.find_first_not_of(" \t") == std::string_view::npos;
}

// Whether a text has several lines that a block scalar reproduces exactly.
bool fits_a_block(std::string_view text) {
  const std::size_t last = text.find_last_not_of('\n');
  if (text.find('\n') == std::string_view::npos || last == std::string_view::npos) return false;
  // A line of blanks at either end could be read as indentation.
  const std::string_view content = text.substr(0, last + 1);
  const std::size_t last_line = content.rfind('\n');
  if (is_blank_line(content.substr(0, content.find('\n'))) ||
      is_blank_line(content.substr(last_line == std::string_view::npos ? 0 : last_line + 1))) {
    return false;
  }
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.size == 0) return false;
    if (text.front() != '\n' && text.front() != '\t' && !is_printable(character.code)) return false;
    text.remove_prefix(character.size);
  }
  return true;
}

// The text after the key or dash, with a newline at the end.
std::string block_scalar(std::string_view text, std::size_t indent) {
  std::string out = "|";
  // If the text begins with blanks, readers cannot distinguish them from the indentation.
  if (std::string_view(" \t\n").find(text.front()) != std::string_view::npos) {
    out += std::to_string(kStep);
  }
  if (!text.ends_with('\n')) {
    out += '-';
  } else if (text.ends_with("\n\n")) {
    out += '+';
  }
  out += '\n';
  if (text.ends_with('\n')) text.remove_suffix(1);
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) out += std::string(indent, ' ') + std::string(text.substr(0, end));
    out += '\n';
    if (end == text.size()) return out;
    text.remove_prefix(end + 1);
  }
}

std::string scalar_on_a_line(const std::string& text, bool plain) {
  if (plain && text.empty()) return "null";
  if (plain && can_be_plain(text)) return text;
  return needs_quotes(text) ? double_quoted(text) : text;
}

class YamlWriter {
 public:
  std::string take() { return std::move(out_); }

  // `out_` ends at column `indent` of a new line.
  void collection(const Node& node, std::size_t indent) {
    bool first = true;
    const auto start_line = [&] {
      if (!first) out_.append(indent, ' ');
      first = false;
    };
    if (node.is_list()) {
      for (const Node& item : node.items()) {
        start_line();
        out_ += "- ";
        behind_mark(item, indent + kStep);
      }
      return;
    }
    for (const Node::Member& member : node.members()) {
      start_line();
      const std::string key = scalar_on_a_line(member.key, member.plain_key);
      if (key.size() > kMaxKeyBytes) {
        out_ += "? " + key + "\n" + std::string(indent, ' ') + ": ";
        behind_mark(member.value, indent + kStep);
      } else {
        out_ += key + ":";
        behind_key(member.value, indent);
      }
    }
  }

  // Writes a node on the line of a "- ", or of a long key's ": ".
  void behind_mark(const Node& node, std::size_t indent) {
    if (is_empty(node) || node.is_scalar()) {
      flat(node, indent);
    } else {
      collection(node, indent);
    }
  }

  // Writes a scalar or an empty collection up to the end of its line or block.
  void flat(const Node& node, std::size_t indent) {
    if (node.is_map()) {
      out_ += "{}\n";
    } else if (node.is_list()) {
      out_ += "[]\n";
    } else if (type_is_text(node) && fits_a_block(node.text())) {
      out_ += block_scalar(node.text(), indent);
    } else {
      out_ += scalar_on_a_line(node.text(), node.is_plain()) + "\n";
    }
  }

 private:
  static bool is_empty(const Node& node) {
    return (node.is_list() && node.items().empty()) || (node.is_map() && node.members().empty());
  }

  // A plain scalar of several lines is always a string: its source was folded.
  static bool type_is_text(const Node& node) {
    return !node.is_plain() || node.text().find('\n') != std::string::npos ||
           type_of(node.text()) == ScalarType::kString;
  }

  void behind_key(const Node& node, std::size_t indent) {
    if (is_empty(node) || node.is_scalar()) {
      out_ += ' ';
      flat(node, indent + kStep);
      return;
    }
    out_ += '\n';
    const std::size_t inner = node.is_map() ? indent + kStep : indent;
    out_.append(inner, ' ');
    collection(node, inner);
  }

  std::string out_;
};

class JsonWriter {
 public:
  std::string take() { return std::move(out_); }

  void value(const Node& node, std::size_t indent) {
    if (node.is_scalar()) {
      out_ += to_json_scalar(node);
      return;
    }
    std::size_t count = 0;
    out_ += node.is_map() ? '{' : '[';
    const auto next = [&] {
      out_ += count++ > 0 ? ",\n" : "\n";
      out_.append(indent + kStep, ' ');
    };
    for (const Node& item : node.items()) {
      next();
      value(item, indent + kStep);
    }
    for (const Node::Member& member : node.members()) {
      next();
      out_ += to_json_key(member) + ": ";
      value(member.value, indent + kStep);
    }
    if (count > 0) out_ += "\n" + std::string(indent, ' ');
    out_ += node.is_map() ? '}' : ']';
  }

 private:
  std::string out_;
};

}  // namespace

std::string to_yaml(const Node& node) {
  // Some readers indent a block scalar without a parent by one less.
  if (node.is_scalar()) return scalar_on_a_line(node.text(), node.is_plain()) + "\n";
  YamlWriter writer;
  writer.behind_mark(node, 0);
  return writer.take();
}

std::string to_json(const Node& node) {
  JsonWriter writer;
  writer.value(node, 0);
  return writer.take() + "\n";
}

}  // namespace fo::yaml
