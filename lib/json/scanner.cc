#include "json/scanner.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "json/object.h"

namespace fo::json {
namespace {

using base::Character;
using base::first_wtf8_character;

constexpr char32_t kFirstHigh = 0xd800;
constexpr char32_t kFirstLow = 0xdc00;
constexpr char32_t kEndOfLow = 0xe000;
constexpr std::size_t kHalfBytes = 3;
// Numbers with at most this many digits are less than 2^32.
constexpr std::size_t kShortDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
unsigned byte_of(char c) { return static_cast<unsigned char>(c); }
bool is_high(char32_t code) { return code >= kFirstHigh && code < kFirstLow; }
bool is_low(char32_t code) { return code >= kFirstLow && code < kEndOfLow; }

void append_code(std::string& text, char32_t code) {
  const auto add = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    add(code);
    return;
  }
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

// The code of a "uXXXX" that the scanner has checked; `at` is the offset of the "u".
char32_t code_of_escape(std::string_view text, std::size_t at) {
  unsigned code = 0;
  std::from_chars(text.data() + at + 1, text.data() + at + 5, code, 16);
  return code;
}

// Decodes a string that was checked before; `raw` is the text between its quotes.
std::string decode(std::string_view raw) {
  std::string text;
  text.reserve(raw.size());
  for (std::size_t at = 0; at < raw.size();) {
    const std::size_t escape = std::min(raw.find('\\', at), raw.size());
    text.append(raw, at, escape - at);
    if (escape == raw.size()) break;
    const char kind = raw[escape + 1];
    at = escape + 2;
    switch (kind) {
      case 'b':
        text.push_back('\b');
        break;
      case 'f':
        text.push_back('\f');
        break;
      case 'n':
        text.push_back('\n');
        break;
      case 'r':
        text.push_back('\r');
        break;
      case 't':
        text.push_back('\t');
        break;
      case 'u': {
        std::string character;
        append_code(character, code_of_escape(raw, escape + 1));
        join_halves(text, character);
        at = escape + 6;
        break;
      }
      default:
        text.push_back(kind);
    }
  }
  return text;
}

}  // namespace

void Scanner::refuse() const {
  throw Misfit("not JSON at byte " + std::to_string(std::min(at_, text_.size()) + 1));
}

void Scanner::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

Scanner::Kind Scanner::kind() {
  skip_space();
  if (at_ == text_.size()) refuse();
  switch (text_[at_]) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kList;
    case '"':
      return Kind::kText;
    case 't':
      return Kind::kTrue;
    case 'f':
      return Kind::kFalse;
    case 'n':
      return Kind::kNull;
    default:
      if (text_[at_] != '-' && !is_digit(text_[at_])) refuse();
      return Kind::kNumber;
  }
}

void Scanner::enter(char bracket) {
  skip_space();
  if (at_ == text_.size() || text_[at_] != bracket) refuse();
  if (++depth_ > kMaxDepth) throw TooDeep("nested too deeply");
  ++at_;
  skip_space();
}

bool Scanner::leave_if(char bracket) {
  if (at_ == text_.size() || text_[at_] != bracket) return false;
  ++at_;
  return true;
}

bool Scanner::next_of(char bracket) {
  const std::size_t end = at_;
  skip_space();
  if (leave_if(bracket)) return false;
  if (!leave_if(',')) {
    at_ = end;
    refuse();
  }
  skip_space();
  return true;
}

std::string_view Scanner::read_name(std::string& space) {
  std::string_view name = pass_string();
  if (name.find('\\') != name.npos) name = space = decode(name);
  skip_space();
  if (!leave_if(':')) refuse();
  skip_space();
  return name;
}

std::string_view Scanner::skip() {
  const Kind next = kind();
  const std::size_t begin = at_;
  switch (next) {
    case Kind::kObject:
      object([this](std::string_view) { skip(); });
      break;
    case Kind::kList:
      list([this] { skip(); });
      break;
    case Kind::kText:
      pass_string();
      break;
    case Kind::kNumber:
      pass_number();
      break;
    case Kind::kTrue:
      pass_word("true");
      break;
    case Kind::kFalse:
      pass_word("false");
      break;
    case Kind::kNull:
      pass_word("null");
      break;
  }
  return text_.substr(begin, at_ - begin);
}

const char* Scanner::describe() {
  const Kind next = kind();
  if (next == Kind::kObject) return "an object";
  if (next == Kind::kList) return "a list";
  const std::string_view value = skip();
  if (next == Kind::kText) return "text";
  if (next == Kind::kNull) return "null";
  if (next != Kind::kNumber) return "a boolean";
  if (value.front() == '-') return "a negative number";
  return Scanner(value).number() ? "a number" : "a number that is not a non-negative integer";
}

std::string Scanner::text() {
  skip_space();
  return decode(pass_string());
}

std::optional<std::uint64_t> Scanner::number() {
  skip_space();
  const std::size_t begin = at_;
  pass_number();
  const std::string_view digits = text_.substr(begin, at_ - begin);
  std::uint64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_whole = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

bool Scanner::short_numbers(std::vector<std::uint32_t>& numbers) {
  skip_space();
  std::size_t at = at_;
  const auto byte = [&] { return at < text_.size() ? text_[at] : '\0'; };
  if (byte() != '[' || depth_ >= kMaxDepth) return false;
  do {
    ++at;
    if (byte() == ' ') ++at;
    const std::size_t begin = at;
    std::uint32_t number = 0;
    for (; is_digit(byte()) && at - begin < kShortDigits; ++at) {
      number = number * 10 + (byte_of(text_[at]) - byte_of('0'));
    }
    const bool is_number = at > begin && (text_[begin] != '0' || at == begin + 1);
    if (!is_number) return false;
    numbers.push_back(number);
  } while (byte() == ',');
  if (byte() != ']') return false;
  at_ = at + 1;
  return true;
}

void Scanner::end() {
  skip_space();
  if (at_ != text_.size()) refuse();
}

std::string_view Scanner::pass_string() {
  if (!leave_if('"')) refuse();
  const std::size_t begin = at_;
  for (;;) {
    if (at_ == text_.size()) refuse();
    const char c = text_[at_];
    if (c == '"') break;
    if (c == '\\') {
      pass_escape();
    } else if (byte_of(c) < 0x20) {
      refuse();
    } else if (byte_of(c) < 0x80) {
      ++at_;
    } else {
      // Only an escape can encode half a surrogate pair, so these bytes must be UTF-8.
      const std::size_t size = base::first_character(text_.substr(at_)).size;
      if (size == 0) refuse();
      at_ += size;
    }
  }
  return text_.substr(begin, at_++ - begin);
}

void Scanner::pass_escape() {
  ++at_;
  if (at_ == text_.size()) refuse();
  const char kind = text_[at_++];
  if (kind != 'u') {
    if (std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos) refuse();
    return;
  }
  const char32_t code = pass_code();
  if (halves_ == Halves::kKept || code < kFirstHigh || code >= kEndOfLow) return;
  if (is_low(code)) refuse();
  pass_word("\\u");
  if (!is_low(pass_code())) refuse();
}

char32_t Scanner::pass_code() {
  for (int i = 0; i < 4; ++i, ++at_) {
    if (at_ == text_.size() || base::hex_value(text_[at_]) < 0) refuse();
  }
  return code_of_escape(text_, at_ - 5);
}

void Scanner::pass_number() {
  const auto pass_digits = [this] {
    if (at_ == text_.size() || !is_digit(text_[at_])) refuse();
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  };
  leave_if('-');
  if (!leave_if('0')) pass_digits();
  if (leave_if('.')) pass_digits();
  if (leave_if('e') || leave_if('E')) {
    if (!leave_if('+')) leave_if('-');
    pass_digits();
  }
}

void Scanner::pass_word(std::string_view word) {
  for (const char c : word) {
    if (!leave_if(c)) refuse();
  }
}

void refuse_file(const std::string& file, const std::string& reason) {
  throw base::Error(base::ExitStatus::kBadData, "read " + base::quoted(file) + ": " + reason);
}

void scan_file(std::string_view text, const std::string& file,
               const std::function<void(Scanner&)>& read, const std::string& subject) {
  Scanner scanner(text, Scanner::Halves::kRefused);
  try {
    read(scanner);
    scanner.end();
  } catch (const Misfit& misfit) {
    refuse_file(file, subject + misfit.what());
  }
}

std::string quoted(std::string_view wtf8) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = "\"";
  const auto escape = [&](char32_t code) {
    text += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) text.push_back(kHex[code >> shift & 0xf]);
  };
  const auto is_plain = [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; };
  for (;;) {
    const auto* const end = std::find_if_not(wtf8.begin(), wtf8.end(), is_plain);
    text.append(wtf8.begin(), end);
    wtf8.remove_prefix(static_cast<std::size_t>(end - wtf8.begin()));
    if (wtf8.empty()) break;
    const Character character = first_wtf8_character(wtf8);
    const std::size_t bytes = std::max<std::size_t>(character.size, 1);
    if (character.size == 0) {
      text += base::kReplacement;
    } else if (is_high(character.code) || is_low(character.code) || character.code < 0x20) {
      escape(character.code);
    } else {
      if (character.code == '"' || character.code == '\\') text.push_back('\\');
      text.append(wtf8.substr(0, bytes));
    }
    wtf8.remove_prefix(bytes);
  }
  text.push_back('"');
  return text;
}

std::string without_halves(std::string_view wtf8) {
  std::string text(wtf8);
  for (std::size_t at = 0; at < text.size();) {
    const Character character = first_wtf8_character(std::string_view(text).substr(at));
    if (is_high(character.code) || is_low(character.code))
      text.replace(at, kHalfBytes, base::kReplacement);
    at += std::max<std::size_t>(character.size, 1);
  }
  return text;
}

bool ends_with_half(std::string_view wtf8) {
  if (wtf8.size() < kHalfBytes) return false;
  const Character last = first_wtf8_character(wtf8.substr(wtf8.size() - kHalfBytes));
  return last.size == kHalfBytes && is_high(last.code);
}

void join_halves(std::string& wtf8, std::string_view more) {
  const Character low = more.empty() ? Character() : first_wtf8_character(more);
  if (!is_low(low.code) || !ends_with_half(wtf8)) {
    wtf8 += more;
    return;
  }
  const std::size_t begin = wtf8.size() - kHalfBytes;
  const char32_t high = first_wtf8_character(std::string_view(wtf8).substr(begin)).code;
  wtf8.resize(begin);
  append_code(wtf8, 0x10000 + ((high - kFirstHigh) << 10) + (low.code - kFirstLow));
  wtf8 += more.substr(low.size);
}

std::string edited(std::string_view text, std::span<const Edit> edits, std::size_t begin,
                   std::size_t end) {
  std::string result;
  result.reserve(end - begin);
  for (const Edit& edit : edits) {
    if (edit.begin < begin || edit.end > end) continue;
    result += text.substr(begin, edit.begin - begin);
    result += edit.replacement;
    begin = edit.end;
  }
  result += text.substr(begin, end - begin);
  return result;
}

std::string edited(std::string_view text, std::span<const Edit> edits) {
  return edited(text, edits, 0, text.size());
}

void sort(std::vector<Edit>& edits) {
  std::sort(edits.begin(), edits.end(),
            [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
}

void MemberCuts::add(std::size_t begin, std::size_t end, bool is_cut) {
  members_.push_back({begin, end, is_cut});
}

void MemberCuts::finish(std::vector<Edit>& edits) const {
  bool has_kept = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    if (!member.is_cut) {
      has_kept = true;
    } else if (has_kept) {
      edits.push_back({members_[i - 1].end, member.end});
    } else {
      edits.push_back({member.begin, i + 1 < members_.size() ? members_[i + 1].begin : member.end});
    }
  }
}

std::string change_members(std::string_view object, std::span<const MemberChange> changes) {
  Scanner scanner(object);
  MemberCuts cuts;
  bool has_kept = false;
  scanner.object([&](std::string_view name) {
    const std::size_t begin = scanner.member_begin();
    const bool is_cut =
        std::any_of(changes.begin(), changes.end(),
                    [&](const MemberChange& change) { return change.name == name; });
    scanner.skip();
    cuts.add(begin, scanner.position(), is_cut);
    has_kept |= !is_cut;
  });
  const std::size_t close = scanner.position() - 1;
  scanner.end();
  std::vector<Edit> edits;
  cuts.finish(edits);
  std::string added;
  for (const MemberChange& change : changes) {
    if (!change.value) continue;
    if (has_kept || !added.empty()) added += ",";
    added += quoted(change.name) + ":" + *change.value;
  }
  edits.push_back({close, close, std::move(added)});
  return edited(object, edits);
}

}  // namespace fo::json
