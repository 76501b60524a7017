// Tools for the tests of command lines: one with an option of each kind, one with subcommands.
#pragma once

#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/options.h"
#include "support.h"
#include "support/temp_dir.h"

namespace fo::cli::test {

using Words = std::vector<std::string>;

class SomeTool : public testing::Test {
 protected:
  ParseResult parse_words(const Words& words, bool takes_command = false) {
    Tool tool{.name = "gms-x", .summary = "Do x", .version = "1.2.3"};
    tool.takes_command = takes_command;
    common_ = {};
    return parse(
        tool, common_, [this](CLI::App& app) { declare(app); }, words);
  }
  std::string config(const std::string& text) {
    std::ofstream(folder_.path("c.toml")) << text;
    return folder_.path("c.toml");
  }
  virtual void declare(CLI::App& app) {
    name_ = "default";
    timeout_ = std::chrono::seconds(30);
    tags_ = {"weights"};
    CLI::Option* name = app.add_option("-n,--name", name_, "a name")
                            ->envname("FO_TEST_NAME")
                            ->capture_default_str();
    app.add_option("--other", other_, "another")->excludes(name);
    add_duration(app, "--timeout", timeout_, "a time");
    add_tags(app, tags_, "tags");
    app.add_option("--number", number_, "a number")->check(CLI::Range(0, 9))->type_name("N");
    app.add_option("file", file_, "a file");
  }

  fo::test::TempDir folder_;
  CommonOptions common_;
  std::string name_;
  std::string other_;
  std::string file_;
  base::Duration timeout_{};
  std::vector<std::string> tags_;
  int number_ = 0;
};

/// One of its subcommands has required options.
class SomeSubcommands : public testing::Test {
 protected:
  ParseResult parse_words(const Words& words) {
    const Tool tool{.name = "gms-x",
                    .summary = "Do x",
                    .version = "1",
                    .takes_command = true,
                    .without_command = {"put"}};
    common_ = {};
    value_ = "default";
    return parse(
        tool, common_,
        [this](CLI::App& app) {
          app.require_subcommand(1);
          app.add_subcommand("get", "get it")
              ->add_option("--value", value_, "value")
              ->envname("FO_TEST_VALUE");
          CLI::App* put = app.add_subcommand("put", "put it");
          put->add_option("--must", value_, "a must")->required();
          put->add_option("FILE", file_, "a file")->required();
        },
        words);
  }

  CommonOptions common_;
  std::string value_;
  std::string file_;
};

}  // namespace fo::cli::test
