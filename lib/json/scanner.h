// A scanner of JSON text (RFC 8259) that reports the position of each value, so that a caller can
// read some values, and cut or replace others, while all other bytes are unchanged. Pure.
//
// The scanner validates text as it passes over it. Decoded strings are WTF-8: UTF-8 in which a lone
// surrogate, such as "\ud83d", is encoded in three bytes, so that a pair whose halves arrive in two
// texts can be joined (join_halves). In files, lone surrogates are refused (scan_file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fo::json {

/// Every function throws Misfit for text that is not JSON, TooDeep for nesting beyond kMaxDepth.
class Scanner {
 public:
  enum class Kind { kObject, kList, kText, kNumber, kTrue, kFalse, kNull };
  /// Whether a lone surrogate is part of a string, or not JSON.
  enum class Halves { kKept, kRefused };

  /// `text` must outlive this object.
  explicit Scanner(std::string_view text, Halves halves = Halves::kKept)
      : text_(text), halves_(halves) {}

  /// Returns the kind of the next value.
  Kind kind();
  /// The offset of the next value in the text, after kind() or at the beginning of `on_member` and
  /// `on_item`. After a value was read, the offset of its end.
  [[nodiscard]] std::size_t position() const { return at_; }

  /// Passes over the next value, and returns its text.
  std::string_view skip();
  /// The next value in words, for messages: "a list". Passes over a value that is not a container.
  const char* describe();
  /// Reads the next value, a kText.
  std::string text();
  /// Passes over the next value, a kNumber; nullopt unless it is a non-negative integer of 64 bits
  /// without a fraction and an exponent.
  std::optional<std::uint64_t> number();

  /// Passes over the next value if it is a list of non-negative integers of at most 9 digits, with
  /// at most one space before each, and appends them. Otherwise passes over nothing, and returns
  /// false; `numbers` may have some of them. Several times as fast as list().
  bool short_numbers(std::vector<std::uint32_t>& numbers);

  /// Enters the next value, a kObject, and calls `on_member(name)` for each member. `on_member`
  /// must pass over the member's value and nothing else; the name is valid during the call.
  template <typename OnMember>
  void object(const OnMember& on_member) {
    enter('{');
    if (!leave_if('}')) {
      do {
        const std::size_t begin = at_;
        std::string space;
        const std::string_view name = read_name(space);
        member_begin_ = begin;
        on_member(name);
      } while (next_of('}'));
    }
    --depth_;
  }

  /// The offset of the member's name, with its quotes. Valid in `on_member` until the value is
  /// passed over.
  [[nodiscard]] std::size_t member_begin() const { return member_begin_; }

  /// Enters the next value, a kList, and calls `on_item` for each item. `on_item` must pass over
  /// the item and nothing else.
  template <typename OnItem>
  void list(const OnItem& on_item) {
    enter('[');
    if (!leave_if(']')) {
      do {
        on_item();
      } while (next_of(']'));
    }
    --depth_;
  }

  /// Checks that no value follows.
  void end();

 private:
  [[noreturn]] void refuse() const;
  void skip_space();
  void enter(char bracket);
  bool leave_if(char bracket);
  // After an item: whether another one follows; otherwise passes the closing bracket.
  bool next_of(char bracket);
  std::string_view read_name(std::string& space);
  // Passes over a string, and returns what is between its quotes.
  std::string_view pass_string();
  void pass_escape();
  // Passes over the four digits of an escape.
  char32_t pass_code();
  void pass_number();
  void pass_word(std::string_view word);

  std::string_view text_;
  Halves halves_;
  std::size_t at_ = 0;
  std::size_t member_begin_ = 0;
  int depth_ = 0;
};

/// Throws Error(kBadData): "read 'file': reason".
[[noreturn]] void refuse_file(const std::string& file, const std::string& reason);

/// Calls `read`, which must pass over one value, for the text of a file, in which lone surrogates
/// are refused. A Misfit becomes refuse_file(file, `subject` and the reason).
void scan_file(std::string_view text, const std::string& file,
               const std::function<void(Scanner&)>& read, const std::string& subject = {});

/// `wtf8` as a JSON string in quotes. Lone surrogates and control characters below U+0020 become
/// escapes; invalid bytes become U+FFFD.
std::string quoted(std::string_view wtf8);

/// Converts WTF-8 to UTF-8: each lone surrogate becomes U+FFFD.
std::string without_halves(std::string_view wtf8);

/// Appends `more` to `wtf8`; two halves of a surrogate pair that meet become one character.
void join_halves(std::string& wtf8, std::string_view more);

/// Whether `wtf8` ends with the first half of a surrogate pair.
bool ends_with_half(std::string_view wtf8);

/// A part of a text, [begin, end), and its replacement.
struct Edit {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string replacement = {};
};

/// Sorts edits by where they begin.
void sort(std::vector<Edit>& edits);

/// The text from `begin` to `end` with these edits, which do not overlap and are in order; edits
/// that are not wholly inside that part are ignored.
std::string edited(std::string_view text, std::span<const Edit> edits, std::size_t begin,
                   std::size_t end);
std::string edited(std::string_view text, std::span<const Edit> edits);

/// Computes the edits that cut some members of one object, with the commas between members.
class MemberCuts {
 public:
  /// Adds the next member of the object: [begin, end) reaches from its name to the end of its
  /// value.
  void add(std::size_t begin, std::size_t end, bool is_cut);
  /// Appends the cuts to `edits`. Call it after the last member was added.
  void finish(std::vector<Edit>& edits) const;

 private:
  struct Member {
    std::size_t begin;
    std::size_t end;
    bool is_cut;
  };
  std::vector<Member> members_;
};

struct MemberChange {
  std::string_view name;
  /// The new value as JSON; nullopt removes the member.
  std::optional<std::string> value;
};

/// The text of `object` without the members that `changes` names, and then with the new values at
/// its end. Throws Misfit if it is not an object.
std::string change_members(std::string_view object, std::span<const MemberChange> changes);

}  // namespace fo::json
