#include "route/resume/whole_answer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/ascii.h"

namespace fo::route {
namespace {

using fo::json::Scanner;

// The texts of which each event brings a part.
constexpr std::array<std::string_view, 5> kParts{"content", "reasoning", "reasoning_content",
                                                 "refusal", "text"};

}  // namespace

void WholeAnswer::Value::become(Kind other) {
  if (kind == other) return;
  *this = {};
  kind = other;
}

WholeAnswer::Value& WholeAnswer::Value::member(std::string_view name) {
  become(Kind::kObject);
  const auto found = std::ranges::find(members, name, &Member::name);
  if (found != members.end()) return found->value;
  return members.emplace_back(Member{std::string(name), {}}).value;
}

void WholeAnswer::Value::add(Scanner& scanner, std::string_view name) {
  const Scanner::Kind next = scanner.kind();
  if (next == Scanner::Kind::kNull) {
    scanner.skip();
  } else if (next == Scanner::Kind::kObject) {
    become(Kind::kObject);
    scanner.object([&](std::string_view inner) { member(inner).add(scanner, inner); });
  } else if (next == Scanner::Kind::kList) {
    become(Kind::kList);
    scanner.list([&] {
      if (!text.empty()) text += ",";
      text += scanner.skip();
    });
  } else if (next == Scanner::Kind::kText && text::is_one_of(name, kParts)) {
    become(Kind::kText);
    fo::json::join_halves(text, scanner.text());
  } else {
    become(Kind::kOther);
    text = scanner.skip();
  }
}

void WholeAnswer::Value::write(std::string& json) const {
  switch (kind) {
    case Kind::kNull:
      json += "null";
      return;
    case Kind::kOther:
      json += text;
      return;
    case Kind::kText:
      json += fo::json::quoted(fo::json::without_halves(text));
      return;
    case Kind::kList:
      json += "[" + text + "]";
      return;
    case Kind::kObject:
      for (const Member& member : members) {
        json += &member == &members.front() ? "{" : ",";
        json += fo::json::quoted(member.name) + ":";
        member.value.write(json);
      }
      json += members.empty() ? "{}" : "}";
  }
}

base::ByteCount WholeAnswer::Value::size() const {
  base::ByteCount bytes = text.size();
  for (const Member& member : members) {
    bytes += sizeof(Member) + member.name.size() + member.value.size();
  }
  return bytes;
}

void WholeAnswer::feed(std::string_view bytes) {
  while (const std::optional<http::SseEvent> event = events_.next(bytes)) {
    if (event->data != "[DONE]") add_event(event->data);
  }
}

void WholeAnswer::add_event(std::string_view data) {
  Scanner scanner(data);
  scanner.object([&](std::string_view name) {
    Value& value = answer_.member(name);
    if (name != "choices") return value.add(scanner, name);
    scanner.list([&] {
      scanner.object([&](std::string_view inner) {
        const std::string_view whole = inner == "delta" ? "message" : inner;
        choice_.member(whole).add(scanner, inner);
      });
    });
  });
  scanner.end();
}

std::string WholeAnswer::json() {
  Value& object = answer_.member("object");
  if (object.text == R"("chat.completion.chunk")") object.text = R"("chat.completion")";
  Value& choices = answer_.member("choices");
  choices.become(Value::Kind::kList);
  choices.text.clear();
  if (choice_.kind == Value::Kind::kObject) choice_.write(choices.text);
  std::string json;
  answer_.write(json);
  return json;
}

}  // namespace fo::route
