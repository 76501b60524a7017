#include "http/message.h"

#include <gtest/gtest.h>

#include <string>

namespace fo::http {
namespace {

TEST(Fields, AreFoundInAnyCase) {
  const Fields fields{{"Content-Type", "a"}, {"content-type", "b"}};
  EXPECT_EQ(find_field(fields, "CONTENT-TYPE"), "a");
  EXPECT_EQ(find_field(fields, "Content-Typ"), std::nullopt);
  EXPECT_EQ(find_field({}, ""), std::nullopt);
}

TEST(Target, IsDecodedIntoPathAndQuery) {
  std::string path;
  Fields query;
  ASSERT_TRUE(split_target("/a%2Fb+c?x=1&x=%32&y=a+b&flag&&=z", path, query));
  EXPECT_EQ(path, "/a/b+c");
  const Fields want{{"x", "1"}, {"x", "2"}, {"y", "a b"}, {"flag", ""}, {"", "z"}};
  EXPECT_EQ(query, want);
}

TEST(Target, MayBeAbsolute) {
  std::string path;
  Fields query;
  ASSERT_TRUE(split_target("http://host:1/p?q=r", path, query));
  EXPECT_EQ(path, "/p");
  EXPECT_EQ(query.size(), 1U);
  ASSERT_TRUE(split_target("HTTP://host/q", path, query));
  EXPECT_EQ(path, "/q");
  ASSERT_TRUE(split_target("https://host/r?a=/b", path, query));
  EXPECT_EQ(path, "/r");
}

TEST(Target, IsRefusedWhenBroken) {
  std::string path;
  Fields query;
  for (const char* text :
       {"", "*", "a", "http://host", "/%", "/%1", "/%zz", "/%00", "/?%", "/?a=%g1", "/?%0", "?x",
        "/?\xff", "/\xc3\xa4", "/a b", "http://host?x=/live", "https://host#/live",
        "ftp://host/live", "http:///live"}) {
    EXPECT_FALSE(split_target(text, path, query)) << text;
  }
}

TEST(ErrorResponse, IsJsonWhateverTheMessage) {
  const Response response = error_response(404, "no \"such\"\n\xff thing");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.body,
            "{\"error\":{\"code\":404,\"message\":\"no \\\"such\\\"\\n\xef\xbf\xbd thing\","
            "\"type\":\"invalid_request_error\"}}");
  EXPECT_NE(error_response(500, "").body.find("server_error"), std::string::npos);
  EXPECT_EQ(error_message_in(error_response(404, "no such").body), "no such");
}

TEST(ErrorMessage, IsThatOfTheUsualFormats) {
  EXPECT_EQ(error_message_in(R"({"error":{"message":"a"},"message":"b"})"), "a");
  EXPECT_EQ(error_message_in(R"({"error":"a","message":"b"})"), "a");
  EXPECT_EQ(error_message_in(R"({"object":"error","message":"a\nb"})"), "a\nb");
  EXPECT_EQ(error_message_in(R"({"error":{},"detail":[{"msg":"a"},{"msg":"b"}]})"), "a");
  EXPECT_EQ(error_message_in(R"({"detail":"a"})"), "a");
  for (const char* const body : {"", "{", "[]", "busy", R"({"error":5})", R"({"message":{}})",
                                 R"({"error":null,"detail":[]})", R"({"detail":[5]})"}) {
    EXPECT_EQ(error_message_in(body), "") << body;
  }
}

}  // namespace
}  // namespace fo::http
