#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "cli/options.h"

namespace fo::cli::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Files = CompletionValue::Files;

const Tool kTool{.name = "gms-x", .summary = "Do x", .version = "1"};

class Completion : public testing::Test {
 protected:
  Completion() : app_("Do x", "gms-x") {}
  /// The option that was declared last.
  CompletionOption last() { return completion_model(app_, kTool).tool.options.back(); }

  CLI::App app_;
  std::string text_;
  std::vector<std::string> texts_;
  std::vector<base::DeviceOrdinal> devices_;
  bool flag_ = false;
};

TEST_F(Completion, KnowsNamesAndWhatTheyMean) {
  app_.add_flag("-f,--flag", flag_, "a flag");
  EXPECT_THAT(last().names, ElementsAre("-f", "--flag"));
  EXPECT_EQ(last().description, "a flag");
  EXPECT_EQ(last().value, std::nullopt);
}

TEST_F(Completion, KnowsWordsThatAreChecked) {
  app_.add_option("--how", text_)->check(CLI::IsMember({"slow", "fast"}))->type_name("HOW");
  EXPECT_THAT(last().value->words, ElementsAre("slow", "fast"));
  EXPECT_EQ(last().value->files, Files::kNone);
  add_driver(app_, text_);
  EXPECT_THAT(last().value->words, ElementsAre("auto", "cuda", "sim"));
  EXPECT_EQ(last().value->files, Files::kAll);
  add_devices(app_, devices_, "d");
  EXPECT_THAT(last().value->words, ElementsAre("all"));
  EXPECT_TRUE(last().value->is_list);
  app_.add_option("--number", text_)->check(CLI::Range(1, 5))->type_name("N");
  EXPECT_THAT(last().value->words, IsEmpty());
}

TEST_F(Completion, KnowsFilesAndFolders) {
  for (const char* const type : {"FILE", "PATH", "SOCKET", "PATH,..."}) {
    app_.add_option("--" + std::to_string(app_.get_options().size()), text_)->type_name(type);
    EXPECT_EQ(last().value->files, Files::kAll) << type;
  }
  app_.add_option("--dir", text_)->type_name("DIR");
  EXPECT_EQ(last().value->files, Files::kFolders);
  app_.add_option("--profile", text_)->type_name("PROFILE");
  EXPECT_EQ(last().value->files, Files::kNone);
}

TEST_F(Completion, KnowsValuesThatMayBeLeftOut) {
  app_.add_option("--watch", text_)->expected(0, 1)->type_name("[DURATION]");
  EXPECT_TRUE(last().is_value_optional);
}

TEST_F(Completion, OffersItselfUnlessFilesAreArguments) {
  app_.add_subcommand("get", "get it")->add_option("FILE", text_)->type_name("FILE");
  app_.add_subcommand("hidden", "by nobody")->group("");
  const CompletionModel model = completion_model(app_, kTool);
  ASSERT_THAT(model.subcommands, SizeIs(2));
  EXPECT_EQ(model.subcommands[0].name, "get");
  EXPECT_EQ(model.subcommands[0].arguments.at(0).files, Files::kAll);
  EXPECT_EQ(model.subcommands[1].name, "completion");
  app_.add_option("MODEL", text_)->type_name("FILE");
  EXPECT_THAT(completion_model(app_, kTool).subcommands, SizeIs(1));
}

TEST_F(Completion, IsAnsweredOnlyWhenItIsTheFirstWord) {
  EXPECT_FALSE(answer_completion(app_, kTool, {}));
  EXPECT_FALSE(answer_completion(app_, kTool, {"./completion", "bash"}));
  EXPECT_FALSE(answer_completion(app_, kTool, {"--flag", "completion", "bash"}));
  for (const char* const shell : {"bash", "zsh", "fish"}) {
    EXPECT_EQ(answer_completion(app_, kTool, {"completion", shell})->kind,
              ParseResult::Kind::kPrint);
  }
  EXPECT_EQ(answer_completion(app_, kTool, {"completion", "tcsh"})->text,
            "completion 'tcsh': expected bash, zsh or fish");
  EXPECT_EQ(answer_completion(app_, kTool, {"completion"})->kind, Kind::kUsageError);
  EXPECT_EQ(answer_completion(app_, kTool, {"completion", "bash", "x"})->kind, Kind::kUsageError);
}

TEST(CompletionScript, QuotesWhatShellsWouldRead) {
  CompletionModel model;
  model.tool.name = "gms-x";
  model.tool.options.push_back({{"--odd"}, "it's [a] $(b) \\ c: d", std::nullopt, false});
  EXPECT_THAT(completion_script(model, "zsh").value(),
              HasSubstr(R"('*--odd[it'\''s \[a\] $(b) \\ c\: d]')"));
  EXPECT_THAT(completion_script(model, "fish").value(),
              HasSubstr(R"(-d 'it\'s [a] $(b) \\ c: d')"));
  EXPECT_THAT(completion_script(model, "bash").value(), Not(HasSubstr("$(b)")));
  EXPECT_EQ(completion_script(model, "csh"), std::nullopt);
}

}  // namespace
}  // namespace fo::cli::test
