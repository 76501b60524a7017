#include "http/sse.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/failure.h"

namespace fo::http {
namespace {

using base::ExitStatus;
using fo::test::status_of;
using Events = std::vector<SseEvent>;
using namespace std::string_literals;
using namespace std::string_view_literals;

void read(SseReader& reader, std::string_view bytes, Events& events) {
  while (auto event = reader.next(bytes)) events.push_back(*event);
  EXPECT_TRUE(bytes.empty());
}

Events read_in_pieces(std::string_view stream, std::size_t size) {
  SseReader reader;
  Events events;
  for (; !stream.empty(); stream.remove_prefix(std::min(size, stream.size()))) {
    read(reader, stream.substr(0, size), events);
  }
  return events;
}

/// The events of a stream; they must not depend on the pieces in which it arrives.
Events events_of(std::string_view stream) {
  const Events whole = read_in_pieces(stream, stream.size());
  for (std::size_t size = 1; size < stream.size(); ++size) {
    EXPECT_EQ(read_in_pieces(stream, size), whole) << "in pieces of " << size;
  }
  return whole;
}

SseEvent message(const std::string& data, const std::string& id = "") {
  return {"message", data, id};
}

// The examples of the standard.

TEST(Sse, AnEventIsTheLinesUpToABlankOne) {
  EXPECT_EQ(events_of("data: YHOO\ndata: +2\ndata: 10\n\n"), Events{message("YHOO\n+2\n10")});
}

TEST(Sse, CommentsIdsAndSpacesAreAsTheStandardHasThem) {
  const Events events = events_of(
      ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n");
  // The end of the stream truncates the third event.
  EXPECT_EQ(events, (Events{message("first event", "1"), message("second event")}));
}

TEST(Sse, DataWithoutAValueIsAnEmptyLine) {
  EXPECT_EQ(events_of("data\n\ndata\ndata\n\ndata:"), (Events{message(""), message("\n")}));
}

TEST(Sse, OneSpaceBehindTheColonIsLeftOut) {
  EXPECT_EQ(events_of("data:test\n\ndata: test\n\n"), (Events{message("test"), message("test")}));
  EXPECT_EQ(events_of("data:  test\n\n"), Events{message(" test")});
}

TEST(Sse, LinesEndWithLfCrOrBoth) {
  const Events expected{message("a\nb"), message("c")};
  EXPECT_EQ(events_of("data: a\ndata: b\n\ndata: c\n\n"), expected);
  EXPECT_EQ(events_of("data: a\rdata: b\r\rdata: c\r\r"), expected);
  EXPECT_EQ(events_of("data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n"), expected);
  EXPECT_EQ(events_of("data: a\rdata: b\n\rdata: c\r\n\n"), expected);
}

TEST(Sse, AnEventIsGivenAtTheCrAndTheLfBehindItIsNoLine) {
  SseReader reader;
  std::string_view bytes = "data: a\r\n\r";
  ASSERT_EQ(reader.next(bytes), message("a"));
  Events events;
  read(reader, "\ndata: b\n", events);
  read(reader, "\n", events);
  EXPECT_EQ(events, Events{message("b")});
}

TEST(Sse, AByteOrderMarkIsLeftOutAtTheBeginningAlone) {
  EXPECT_EQ(events_of("\xef\xbb\xbf"
                      "data: a\n\n"),
            Events{message("a")});
  EXPECT_EQ(events_of("\xef\xbb\xbf\ndata: a\n\n"), Events{message("a")});
  // A second byte order mark becomes part of a field's name.
  EXPECT_EQ(events_of("\xef\xbb\xbf\xef\xbb\xbf"
                      "data: a\n\ndata: b\n\n"),
            Events{message("b")});
  EXPECT_EQ(events_of("data: a\n\n\xef\xbb\xbf"
                      "data: b\n\n"),
            Events{message("a")});
}

TEST(Sse, AnEventHasTheTypeThatItNames) {
  EXPECT_EQ(events_of("event: add\ndata: 1\n\ndata: 2\n\nevent: x\nevent: y\ndata: 3\n\n"),
            (Events{{"add", "1", ""}, message("2"), {"y", "3", ""}}));
}

TEST(Sse, ATypeWithoutDataIsForgotten) {
  EXPECT_EQ(events_of("event: add\n\ndata: 1\n\n"), Events{message("1")});
}

TEST(Sse, AnIdHoldsUntilTheNext) {
  EXPECT_EQ(events_of("id: 1\ndata: a\n\ndata: b\n\nid: 2\n\ndata: c\n\nid\ndata: d\n\n"),
            (Events{message("a", "1"), message("b", "1"), message("c", "2"), message("d")}));
}

TEST(Sse, AnIdWithANulIsIgnored) {
  EXPECT_EQ(events_of("id: 1\nid: 2\0003\ndata: a\n\n"sv), Events{message("a", "1")});
}

TEST(Sse, OtherFieldsAreIgnored) {
  EXPECT_EQ(events_of("Data: a\n data: b\nother: c\nother\n:data: d\ndata : e\ndata: f\n\n"),
            Events{message("f")});
}

TEST(Sse, RetryIsANumberOrIgnored) {
  SseReader reader;
  Events events;
  read(reader, "retry: x\nretry: 1s\nretry: -1\nretry:\nretry: 99999999999999999999\n", events);
  EXPECT_EQ(reader.retry(), std::nullopt);
  read(reader, "retry: 1500\n\n", events);
  EXPECT_EQ(reader.retry(), std::chrono::milliseconds(1500));
  EXPECT_TRUE(events.empty());
}

TEST(Sse, BytesAreNotLookedAt) {
  EXPECT_EQ(events_of("data: \xff\x00\x01\n\n"sv), Events{message("\xff\0\x01"s)});
}

TEST(Sse, KnowsWhetherItIsInAnEvent) {
  SseReader reader;
  Events events;
  EXPECT_FALSE(reader.is_in_event());
  read(reader, "data: a", events);
  EXPECT_TRUE(reader.is_in_event());
  read(reader, "\n", events);
  EXPECT_TRUE(reader.is_in_event());
  read(reader, "\n", events);
  EXPECT_FALSE(reader.is_in_event());
  read(reader, ": comment\n", events);
  EXPECT_FALSE(reader.is_in_event());
}

TEST(Sse, AnEventBeyondTheLimitIsRefused) {
  for (const std::string& stream :
       {"data: "s + std::string(95, 'x'), ": "s + std::string(99, 'x'),
        "data: "s + std::string(60, 'x') + "\ndata: " + std::string(60, 'x'),
        "event: "s + std::string(60, 'x') + "\ndata: " + std::string(60, 'x')}) {
    for (const std::size_t size : {stream.size(), std::size_t{1}, std::size_t{7}}) {
      SseReader reader(100);
      EXPECT_EQ(status_of([&] {
                  for (std::size_t at = 0; at < stream.size(); at += size) {
                    std::string_view piece = std::string_view(stream).substr(at, size);
                    EXPECT_FALSE(reader.next(piece));
                  }
                }),
                ExitStatus::kProtocol)
          << stream;
    }
  }
}

TEST(Sse, AnEventUpToTheLimitIsRead) {
  SseReader reader(100);
  Events events;
  for (int i = 0; i < 10; ++i) read(reader, "data: " + std::string(94, 'x') + "\n\n", events);
  EXPECT_EQ(events.size(), 10U);
  reader.set_limit(50);
  EXPECT_EQ(status_of([&] { read(reader, "data: " + std::string(94, 'x') + "\n\n", events); }),
            ExitStatus::kProtocol);
}

TEST(Sse, WritesADataLineForEachLine) {
  EXPECT_EQ(format_sse("a"), "data: a\n\n");
  EXPECT_EQ(format_sse(""), "data: \n\n");
  EXPECT_EQ(format_sse("a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
}

TEST(Sse, WritesTypeAndIdWhereThereAreAny) {
  EXPECT_EQ(format_sse(message("a")), "data: a\n\n");
  EXPECT_EQ(format_sse(SseEvent{"", "a", ""}), "data: a\n\n");
  EXPECT_EQ(format_sse(SseEvent{"add", "a", "7"}), "event: add\nid: 7\ndata: a\n\n");
}

TEST(Sse, DoesNotWriteATypeOrAnIdThatWouldBeMoreThanOneField) {
  for (const std::string& bad : {"a\nb"s, "a\rb"s}) {
    EXPECT_EQ(status_of([&] { format_sse(SseEvent{bad, "x", ""}); }), ExitStatus::kSoftware);
    EXPECT_EQ(status_of([&] { format_sse(SseEvent{"x", "x", bad}); }), ExitStatus::kSoftware);
  }
  EXPECT_EQ(status_of([&] { format_sse(SseEvent{"x", "x", "a\0b"s}); }), ExitStatus::kSoftware);
}

TEST(Sse, WhatIsWrittenIsRead) {
  for (const std::string& data : {""s, "a"s, " a"s, "a\n"s, "\n"s, "a\n\nb"s, ":x"s, "data: y"s}) {
    for (const std::string& type : {"message"s, "add"s, " x"s, "a\0b"s}) {
      EXPECT_EQ(events_of(format_sse(SseEvent{type, data, ""})), (Events{{type, data, ""}}));
    }
  }
}

TEST(Sse, CommentsAreSkipped) {
  EXPECT_EQ(format_sse_comment("resumed 1"), ": resumed 1\n\n");
  EXPECT_EQ(events_of(format_sse_comment("a\ndata: b") + format_sse("c")), Events{message("c")});
}

TEST(Sse, ACommentInAnEventEndsIt) {
  EXPECT_EQ(events_of("data: a\n" + format_sse_comment("x")), Events{message("a")});
}

}  // namespace
}  // namespace fo::http
