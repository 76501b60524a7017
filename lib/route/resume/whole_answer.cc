#include "route/resume/whole_answer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

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

std::string WholeAnswer::Value::json() const {
  switch (kind) {
    case Kind::kNull:
      break;
    case Kind::kOther:
      return text;
    case Kind::kText:
      return fo::json::quoted(fo::json::without_halves(text));
    case Kind::kList:
      return "[" + text + "]";
    case Kind::kObject: {
      std::string object = "{";
      for (const Member& member : members) {
        if (object.size() > 1) object += ",";
        object += fo::json::quoted(member.name) + ":" + member.value.json();
      }
      return object + "}";
    }
  }
  return "null";
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

std::string WholeAnswer::json() const {
  Value answer = answer_;
  Value& object = answer.member("object");
  if (object.text == R"("chat.completion.chunk")") object.text = R"("chat.completion")";
  Value& choices = answer.member("choices");
  choices.become(Value::Kind::kList);
  if (choice_.kind == Value::Kind::kObject) choices.text = choice_.json();
  return answer.json();
}

}  // namespace fo::route
