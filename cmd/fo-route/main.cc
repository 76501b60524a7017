// fo-route: one OpenAI-compatible address for many engines.
#include <string>
#include <vector>

#include "cli/app.h"
#include "ctl.h"
#include "options.h"

int main(int argc, char** argv) {
  using namespace fo;
  fo_route::Options options;
  const cli::Tool tool{.name = "fo-route",
                       .summary = "Serve one OpenAI-compatible address for many engines.",
                       .version = FO_VERSION,
                       .is_daemon = true};
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  options.serve.reload = [&] { return fo_route::read_again(tool, arguments); };
  return cli::run(
      argc, argv, tool, options.common, [&](CLI::App& app) { fo_route::declare(app, options); },
      [&] {
        fo_route::check(options);
        return options.command == fo_route::Options::Command::kCtl ? fo_route::ctl(options)
                                                                   : route::serve(options.serve);
      });
}
