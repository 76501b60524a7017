// fo-refengine: a small real inference engine for rehearsals of a failover.
#include <fmt/format.h>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "options.h"
#include "refengine/rank_process.h"

namespace {

using fo::base::ExitStatus;
using fo::base::to_int;
using fo::refengine_tool::Options;

int serve(const Options& options, const fo::cli::CommonOptions& common) {
  fo::refengine::EngineOptions engine = fo::refengine_tool::to_engine_options(options);
  engine.version = FO_VERSION;
  fo::refengine::run_engine(engine, [&](const fo::refengine::EngineReady& ready) {
    fo::cli::print_line(common.json ? fo::refengine::to_json(ready) : "ready " + ready.address);
  });
  return to_int(ExitStatus::kOk);
}

int make_model(const Options& options, const fo::cli::CommonOptions& common) {
  const auto made = fo::refengine::make_model(options.model_dir, options.make_model);
  fo::cli::print_line(common.json ? fmt::format(R"({{"bytes":{},"tensors":{},"files":{}}})",
                                                made.bytes, made.tensors, made.files)
                                  : fmt::format("{} tensors, {} in {} file{}", made.tensors,
                                                fo::base::format_size(made.bytes), made.files,
                                                made.files == 1 ? "" : "s"));
  return to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  fo::cli::CommonOptions common;
  Options options;
  const fo::cli::Tool tool{.name = "fo-refengine",
                           .summary = "A small real inference engine to rehearse a failover with",
                           .version = FO_VERSION,
                           .is_daemon = true};
  const auto body = [&] {
    switch (options.command) {
      case Options::Command::kServe:
        return serve(options, common);
      case Options::Command::kMakeModel:
        return make_model(options, common);
      case Options::Command::kRank:
        return fo::refengine::run_rank_process();
    }
    return to_int(ExitStatus::kSoftware);
  };
  return fo::cli::run(
      argc, argv, tool, common, [&](CLI::App& app) { fo::refengine_tool::declare(app, options); },
      body);
}
