// fo-refengine: a small real inference engine for rehearsals of a failover.
#include <fmt/format.h>

#include "base/exit_status.h"
#include "cli/app.h"
#include "cli/screen/output.h"
#include "options.h"
#include "refengine/rank_process.h"

namespace {

using fo::base::ExitStatus;
using fo::refengine_tool::Options;

int serve(const Options& options) {
  fo::refengine::EngineOptions engine = fo::refengine_tool::to_engine_options(options);
  engine.version = FO_VERSION;
  fo::refengine::run_engine(engine, [&](const fo::refengine::EngineReady& ready) {
    fo::cli::print_line(options.common.json ? fo::refengine::to_json(ready)
                                            : "ready " + ready.address);
  });
  return fo::base::to_int(ExitStatus::kOk);
}

int make_model(const Options& options) {
  const auto made = fo::refengine::make_model(options.model_dir, options.make_model);
  fo::cli::print_line(options.common.json ? fmt::format(R"({{"bytes":{},"tensors":{},"files":{}}})",
                                                        made.bytes, made.tensors, made.files)
                                          : fmt::format("{} tensors, {} in {} file{}", made.tensors,
                                                        fo::base::format_size(made.bytes),
                                                        made.files, made.files == 1 ? "" : "s"));
  return fo::base::to_int(ExitStatus::kOk);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const fo::cli::Tool tool{.name = "fo-refengine",
                           .summary = "A small real inference engine to rehearse a failover with",
                           .version = FO_VERSION,
                           .is_daemon = true};
  return fo::cli::run(argc, argv, tool, options, fo::refengine_tool::declare, [&] {
    switch (options.command) {
      case Options::Command::kServe:
        return serve(options);
      case Options::Command::kMakeModel:
        return make_model(options);
      case Options::Command::kRank:
        return fo::refengine::run_rank_process();
    }
    return fo::base::to_int(ExitStatus::kSoftware);
  });
}
